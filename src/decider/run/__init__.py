"""Executors: they turn rows of token ids into label logits, and refuse to know questions, text and probabilities."""
