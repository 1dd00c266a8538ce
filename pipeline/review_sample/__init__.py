"""Which pairs people are asked about: a stratified sample of the candidates of some queries."""

from pipeline.review_sample.stage import REVIEW_SAMPLE_STAGE, review_sample

__all__ = ["REVIEW_SAMPLE_STAGE", "review_sample"]
