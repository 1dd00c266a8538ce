"""Distilled judges: small cross-encoders trained on the verdicts of a run's judge."""
