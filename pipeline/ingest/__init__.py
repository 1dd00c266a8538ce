"""Reading documents, query logs and search logs: the only room that sees the user's own files."""
