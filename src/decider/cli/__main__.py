"""`python -m decider.cli`. It refuses to know anything; trap: the console script `decider` calls `main` directly."""

from __future__ import annotations

import sys

from decider.cli import main

sys.exit(main())
