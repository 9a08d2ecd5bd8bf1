"""Seeing what becomes of a run: its state, why it stopped, and waits that cost next to nothing."""
