"""Extrapolates the cost of jobs to large corpora from measurements at small sizes."""
