"""The HTML report, the dataset card, and the same figures for Prefect.

source    tables, settings and manifests of the reported run
figure    a figure: title, note, table and drawing function
drawing   drawing primitives: rows of marks along an axis, matrices, scatter plots, quotes
sections  the figures in data order, one file per section
page      renders the HTML page
"""
