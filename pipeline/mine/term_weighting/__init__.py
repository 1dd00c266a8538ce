"""Importance of query terms: learned from documents and log, from a table, or from a language model."""
