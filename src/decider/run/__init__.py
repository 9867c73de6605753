"""Executors: whatever turns rows of token ids into label logits. They refuse to know questions, text and probabilities."""
