"""Retrievers find chunks for queries; every one stands behind the port in `port.py`."""
