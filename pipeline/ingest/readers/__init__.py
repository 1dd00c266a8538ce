"""Readers of file formats, one module per format; `tabular` chooses the reader, `text` splits files into records."""
