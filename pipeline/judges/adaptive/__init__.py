"""Which pairs of a pool to judge next, and when enough of the positives are found: docs/adaptive.md."""
