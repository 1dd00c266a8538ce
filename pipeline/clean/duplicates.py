"""Exact duplicates: the same text but for case and white space."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.clean.sifted import Sifted, flat
from schemas.settings import CleanSettings


def drop_duplicates(queries: pa.Table, settings: CleanSettings) -> Sifted:
    """Keep the first of each tenant's queries that say the same (DevRev-Search, 3.1 (3))."""
    if not settings.deduplicate or not queries.num_rows:
        return Sifted.all_kept(queries)
    text = pc.utf8_lower(pc.utf8_normalize(flat(queries["text"]), form="NFKC"))
    text = pc.utf8_trim_whitespace(pc.replace_substring_regex(text, r"\s+", " "))
    keys = pc.binary_join_element_wise(queries["tenant"], text, "\x00")
    codes = flat(keys).dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    return Sifted.by_representative(queries, first[codes], "duplicate")
