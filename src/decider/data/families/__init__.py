"""Programmatic decisions: each family writes states and questions whose right answers are computed, not labelled.

It refuses to know files and models. Trap: an item is a function of its random numbers alone; a changed word list or
template makes other data under the same seed, and figures of two versions no longer compare.
"""
