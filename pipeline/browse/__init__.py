"""A run to search and look at: `open_catalogue`, then `find` for lists and `sheet_of` for one query."""
