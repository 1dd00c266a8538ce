"""Relevance evidence: a positive and hard negatives for each query by a ranker (ScalingNote, 4.1), and verification of
mined pairs.
"""
