"""Smaller query towers: distilled from queries alone, for an index that stays as it is."""
