"""Word counts, and the percentile filter on them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.clean.sifted import Sifted, flat
from schemas.settings import CleanSettings


def count_words(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Runs of characters between white space, per text; 0 for an empty one."""
    return pc.cast(pc.count_substring_regex(text, r"\S+"), pa.int32())


def drop_extremes(queries: pa.Table, settings: CleanSettings) -> Sifted:
    """Drop queries outside the percentiles of their tenant's word counts; the bounds themselves stay in.

    Source: DevRev-Search, 3.1 (1): bottom and top 25 %.
    """
    words = queries["n_words"].to_numpy()
    tenant = flat(queries["tenant"]).dictionary_encode()
    code = tenant.indices.to_numpy()
    low, high = np.zeros(len(words)), np.zeros(len(words))
    for number in range(len(tenant.dictionary)):
        mine = code == number
        low[mine], high[mine] = np.percentile(words[mine], [settings.min_percentile, settings.max_percentile])
    nothing = pa.scalar(None, pa.string())
    reasons = pc.if_else(pa.array(words < low), "too short", pc.if_else(pa.array(words > high), "too long", nothing))
    return Sifted.by_reason(queries, reasons)
