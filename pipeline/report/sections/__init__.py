"""Sections of the report, one file each with a `SECTION`."""
