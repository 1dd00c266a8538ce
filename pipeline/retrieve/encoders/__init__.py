"""Encoders turn texts into vectors; the port is in `port.py`."""
