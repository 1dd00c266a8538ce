"""Encoders turn texts into vectors; every one stands behind the port in `port.py`."""
