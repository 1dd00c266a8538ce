"""Training triplets from the judged pool or from the log, and the test set of a later period."""
