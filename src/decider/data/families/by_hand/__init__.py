"""Decisions written by hand: situations that people thought of, each with its own questions.

It refuses to make anything up. Trap: neighbours in a file are often pairs that differ in one detail, so they are held
out, or not, together.
"""
