"""Human validation of a run's judge: sampling, review, estimates for the whole run, and the release gate."""
