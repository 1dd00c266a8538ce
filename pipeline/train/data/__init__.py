"""Training data as arrays: base encoder, queries, labels, text vectors and hard negatives."""
