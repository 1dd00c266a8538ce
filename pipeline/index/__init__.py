"""Semantic ids and a compressed index of a run's vectors, measured against exact search, and kept up to date.

`given` (what is indexed), `texts` (their numbers), `codebooks` and `semantic_ids` (residual k-means), `kinds/` (faiss,
a file each), `filling` (the files), `recall` (what a search finds of an exact one), `record` (what the folder says of
itself), `searcher` (the way in for whoever searches it), `check`.
"""
