"""The judge of a run against people: estimates for the run from a reviewed sample, and the release gate."""

from pipeline.validation.gate import GATE, demand, gate, missed, outcome
from pipeline.validation.labels import labels_csv
from pipeline.validation.reviews import REVIEWS_STAGE, write_reviews
from pipeline.validation.stage import VALIDATE, validate

__all__ = [
    "GATE",
    "REVIEWS_STAGE",
    "VALIDATE",
    "demand",
    "gate",
    "labels_csv",
    "missed",
    "outcome",
    "validate",
    "write_reviews",
]
