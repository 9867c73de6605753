"""Families without a right answer to reach: gold is drawn by lot, so that the right thing to learn is a probability.

It refuses to know what a model makes of them. Trap: an accuracy of these says nothing; their odds cap it.
"""
