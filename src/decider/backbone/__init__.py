"""Decoders of our own over packed tokens. They refuse to know plans, labels and requests."""
