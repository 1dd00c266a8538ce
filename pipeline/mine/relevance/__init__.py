"""Relevance by a ranker: a positive and a hard negative for each query (ScalingNote, 4.1), and a check of pairs."""
