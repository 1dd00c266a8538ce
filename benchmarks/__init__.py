"""Benchmarks: `make bench` runs them; results are in benchmarks/results and on docs/benchmarks.md."""
