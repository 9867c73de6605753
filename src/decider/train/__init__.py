"""Training of a model on labelled decisions, on rows and packs as they are served. It refuses to know the words of a
command.
"""
