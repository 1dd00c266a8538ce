"""Human review of pairs: assignment to reviewers, the journal of answers, and the table `reviews`."""
