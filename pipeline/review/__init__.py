"""What people say of a run's pairs: kept answer by answer, and read back as rows of `reviews`."""

from pipeline.review.journal import Answer, Journal, standing

__all__ = ["Answer", "Journal", "standing"]
