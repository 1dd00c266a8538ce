"""Who finds what: encoders turn texts into vectors, retrievers find chunks, the pool is the best of each.

Two stages are the way in: `search.search` writes each retriever's lists, `pool.pool` chooses the pairs to judge.
`embedding.embed_all` fills the vector cache ahead of the search. Retrievers and encoders stand behind their ports,
`retrievers/port.py` and `encoders/port.py`.
"""
