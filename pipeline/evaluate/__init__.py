"""How good retrievers are by the labels."""
