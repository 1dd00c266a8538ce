"""Scaling laws: loss as a function of labelled queries, and plans for labelling more.

In data order: `grid_stage` (or `points`, for imported points), `fit_stage`, `plan_stage`, `page`.
"""
