"""Towers of one's own: both from triplets (`dual`), or a smaller query tower from queries alone."""
