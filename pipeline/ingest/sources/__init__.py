"""Sources that are no local files: databases, indexes of search engines, object stores and the Hugging Face hub.

A source is copied to a local snapshot, which the readers of files read.
"""
