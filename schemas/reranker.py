"""Settings of `train-reranker`: a cross-encoder from the labels of runs."""

from pydantic import Field

from darklode.schemas.section import Section
from darklode.schemas.shared import EvalQueries, LearningRates, MaxSteps, NumNegatives, TrainBatchSize

CANDIDATES = 50
"""Default number of candidates per query."""


class RerankerSettings(Section):
    """Training of a cross-encoder (`train-reranker`)."""

    num_negatives: NumNegatives = 8
    max_steps: MaxSteps = 1000
    batch_size: TrainBatchSize = 32
    learning_rates: LearningRates = Field((5e-5,), min_length=1)
    eval_queries: EvalQueries = 200
