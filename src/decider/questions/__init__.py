"""Typed questions and answers: their types, checks, text and confidence. Pure Python: no NumPy, no torch.

It refuses to know tokens and models. Trap: this package re-exports nothing; import from its modules, so that their
order (limits → jsontext → types → prompt, state → request → wire) stays visible.
"""
