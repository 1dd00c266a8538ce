"""The report: a run as one page that people look at, and the same figures for Prefect.

source    what a report is made from: tables, settings, manifests
figure    a figure: its title, how to read it, its table and how that is drawn
drawing   what can be drawn: rows of marks along an axis, a matrix, points, quotations
sections  the figures in data order, one file a section
page      the whole as HTML
"""
