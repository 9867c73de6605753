"""Labelled decisions: read, asked, measured, compared and shown.

It refuses to fit anything: that is `calibrate`. Trap: a rate without its count, data and precision is worth nothing, so
`RunFacts` travel with every result.
"""
