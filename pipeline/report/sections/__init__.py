"""The report's figures, one file a section: each has a `SECTION`, and `page` orders them."""
