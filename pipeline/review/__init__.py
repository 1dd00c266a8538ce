"""What people say of a run's pairs: whom to ask what, kept answer by answer, and read back as rows of `reviews`."""

from pipeline.review.deck import Deck, open_deck
from pipeline.review.journal import Answer, Journal, standing
from pipeline.review.turns import Turns

__all__ = ["Answer", "Deck", "Journal", "Turns", "open_deck", "standing"]
