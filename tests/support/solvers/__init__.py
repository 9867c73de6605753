"""Right answers of programmatic decisions, worked out anew from the state's text and the question's words.

Refuses to import what wrote them. Trap: a solver that shares code with the generator agrees with its mistakes.
"""
