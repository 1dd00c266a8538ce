"""Semantic ids and a compressed index of a run's vectors, measured against exact search and updated in place.

Building, in this order: `source` (texts and vectors, from a run or from a `vector_file`), `texts` (numbers),
`residual_kmeans` and `semantic_ids`, `build` (index files, of the faiss index kinds in `kinds/` and of
`stored_vectors`), `probes` (exact neighbors), `recall`, `record` (`index.json`) and `page`. `shard` spreads the work.

Using: `searcher` opens a folder, `search` searches it, `retriever` makes a retriever of it, `check` verifies it.
"""
