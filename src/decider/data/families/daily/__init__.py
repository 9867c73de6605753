"""Families of everyday decisions: sentences with labels, put together so that the right answer follows from the labels.

It refuses to judge a text. Trap: the sentences lie in `texts/*.toml`; a label there is the gold of thousands of items.
"""
