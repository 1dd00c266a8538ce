"""What people say of a run's pairs: whom to ask what, kept answer by answer, and read back as rows of `reviews`."""
