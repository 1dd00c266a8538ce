"""Training data as arrays: queries, labels, text vectors and hard negatives."""
