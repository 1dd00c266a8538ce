"""One part of each kind for Darklode, in a package of its own."""
