"""Rows that start alike: their common start runs once, and only what differs runs for each row."""
