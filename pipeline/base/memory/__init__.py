"""What is kept across runs by key and never paid for twice: vectors and verdicts."""
