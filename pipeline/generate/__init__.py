"""Queries for texts that nobody searched for yet: written, sieved, found again and judged."""
