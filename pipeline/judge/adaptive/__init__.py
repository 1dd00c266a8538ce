"""Adaptive judging: which pairs to judge next, and when to stop (docs/guides/adaptive-judging.md)."""
