"""Which pairs of a pool to judge next, and when enough positives are found: `rounds.Rounds`.

docs/guides/adaptive-judging.md explains the method.
"""
