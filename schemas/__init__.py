"""The language of the project: one Arrow schema per table, and the settings types."""
