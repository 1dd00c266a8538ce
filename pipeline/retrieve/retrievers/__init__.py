"""Retrievers find chunks for queries; the port is in `port.py`."""
