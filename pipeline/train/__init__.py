"""Adapt a query encoder to labels; document vectors stay as they are.

`data`: training data as arrays. `fit`: methods, trials and model selection. `release`: evaluation on the test queries,
the verdict, and the adapter folder. The stages in data order: `data.pairs`, `release.headroom`, `fit.stage`,
`release.evaluation`, `data.unjudged`, `release.verdict`, `release.folder`.
"""
