"""Retrieval: encoders turn texts into vectors, retrievers find chunks, and the pool collects the best of each.

Two stages are the entry points: `search.search` writes each retriever's rankings, `pool.pool` selects the pairs to
judge.
`embedding.embed_all` fills the vector cache before the search. The ports are `retrievers/port.py` and
`encoders/port.py`.
"""
