"""The web page where people label pairs."""
