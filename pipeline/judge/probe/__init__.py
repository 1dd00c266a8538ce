"""Probes of a judge: altered pairs whose label is known or must not change."""
