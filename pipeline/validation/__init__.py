"""The judge of a run against people: estimates for the run from a reviewed sample, and the release gate."""

from pipeline.validation.gate import FIGURES, GATE, demand, gate
from pipeline.validation.labels import labels_csv
from pipeline.validation.reviews import REVIEWS_STAGE, answers_fingerprint, write_reviews
from pipeline.validation.stage import VALIDATE, validate

__all__ = [
    "FIGURES",
    "GATE",
    "REVIEWS_STAGE",
    "VALIDATE",
    "answers_fingerprint",
    "demand",
    "gate",
    "labels_csv",
    "validate",
    "write_reviews",
]
