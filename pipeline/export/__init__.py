"""Export labels and vectors to the formats of other tools.

`formats` exports a run's labels in one of the formats in `kinds/`; `vector_export` writes vectors for the search
engines in `engines/`. `writers` and `grouped_triplets` are shared by formats.
"""
