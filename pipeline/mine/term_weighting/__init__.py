"""Who says how important a query's terms are: learned from the log, from a table, or from a language model."""
