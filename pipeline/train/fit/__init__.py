"""Training: losses, heads, methods that train the encoder, the training loop, and selection on validation queries."""
