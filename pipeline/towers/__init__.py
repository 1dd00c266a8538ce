"""Training of towers: both from triplets (`dual`), or a smaller query tower distilled from queries alone."""
