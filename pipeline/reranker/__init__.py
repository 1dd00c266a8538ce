"""Rerankers: cross-encoders trained on the labels of runs."""

RERANKER_FOLDER = "reranker"
"""Folder of the released model below the output folder."""
