"""Measuring executors: which work, how fast, against which floor, beside which other executor.

It refuses to judge: it prints figures and the machine they were made on. Trap: a figure without its machine, versions
and precision is worth nothing, so none leaves this package alone.
"""
