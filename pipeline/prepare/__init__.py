"""Prepare ingested queries and documents for retrieval (DevRev-Search, 3.1 and 3.2).

There are three stages: `clean.clean` drops queries that are useless for training, `chunk.chunk` splits documents into
the chunks that are retrieved and judged, and `split.split` assigns each query to train, validation or test.
"""
