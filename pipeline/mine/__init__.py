"""Mining a search log, day by day: clicks become evidence, evidence becomes pairs, pairs become triplets.

Every table but the last two has parts of one day each, so that a night adds a day and leaves the others alone.
"""
