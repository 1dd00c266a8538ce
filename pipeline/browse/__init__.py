"""Data of the pages of `darklode browse`: `open_catalogue`, then `find_rows` for lists and `query_of` for a query."""
