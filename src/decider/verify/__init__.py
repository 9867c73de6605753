"""An executor against the oracle: cases, comparisons, verdicts. It refuses to repair or to time anything.

Trap: a check that shares code with what it checks agrees with it; only rows, slots and logits pass between them.
"""
