"""Caches across runs: a keyed store of rows (`store`, `rows`) and of vectors (`vectors`, `shards`), in part files."""
