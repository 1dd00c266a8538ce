"""A run's labels in the formats of other tools, one short file a format."""
