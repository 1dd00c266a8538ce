"""Adaptive judging: which pairs to judge next, and when to stop (`rounds.JudgingRounds`, docs/guides/adaptive-judging.md)."""
