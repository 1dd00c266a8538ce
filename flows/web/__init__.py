"""Pages for people: the server, its guard, and the review of pairs."""
