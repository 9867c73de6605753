"""Labelled decisions to calibration: temperatures, maps of P(yes), thresholds, and the file they are served from.

It refuses to know how logits come about and what a report looks like. Trap: a calibration belongs to one precision and
one layout; fitted on another, its probabilities are wrong and nothing raises.
"""
