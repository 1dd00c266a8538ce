"""Mining of a search log by day: clicks become evidence, evidence becomes pairs, pairs become triplets.

All tables but the last two have parts of one day each, so a nightly run adds a day and leaves the others unchanged.
"""
