"""Admission of log days: daily statistics, implausible days, and people's decisions.

In data order: `figures`, `measures`, `plausible`, `stage`. `decisions` holds people's decisions, and other stages read
`admitted`.
"""
