"""Adapting a query encoder to labels while the documents' vectors stay as they are.

In data order: `pairs` (what is learned from), `headroom` (whether it can help), `stage` (trials), `tested` and
`verdict` (whether it did), `folder` (what one takes home).
"""
