"""Relevance by a ranker: a positive and a hard negative for each query (ScalingNote, 4.1), and a check of pairs."""

from pipeline.relevance.opened import Ranker
from pipeline.relevance.stage import RELEVANCE, relevance
from pipeline.relevance.verify import VERIFY, verify

__all__ = ["RELEVANCE", "VERIFY", "Ranker", "relevance", "verify"]
