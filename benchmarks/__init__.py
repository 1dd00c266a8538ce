"""Measurements, run by `make bench`; results in benchmarks/results, read out in docs/benchmarks.md."""
