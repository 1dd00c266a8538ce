"""Rerankers: cross-encoders trained on the labels of runs."""
