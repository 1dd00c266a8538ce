"""The judge of a run against people: whom to ask what, estimates for the run from the sample, and the release gate."""
