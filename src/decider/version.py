"""The version, which the package's metadata are made from. It refuses to know more.

Trap: a checkout on the path, not installed, has no metadata to ask.
"""

VERSION = "0.1.0"
