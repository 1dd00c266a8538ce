"""Synthetic queries for texts without queries: generated, filtered, round-trip checked and judged."""
