"""Admission of log days: daily statistics, implausible days, and people's decisions.

In data order: `daily_statistics`, `measures`, `outlier_score`, `stage`. `decisions` has people's decisions; other
stages read `admitted_log`.
"""
