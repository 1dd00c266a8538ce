"""The report's figures, one file a section: each has a `SECTION`, and `pipeline.report.contents` orders them."""
