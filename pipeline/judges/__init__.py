"""Judges: the port, the embedded judge, and the pairs that any judge is asked."""
