"""Passages of a run's texts as further training texts of a student: titles, and short spans of sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log

import numpy as np

from darklode.pipeline.train.data.sources import TrainingSource

MAX_PASSAGES = 30_000
"""Passages of all runs together. The teacher encodes each once: about two minutes on one core for MiniLM."""

MAX_SPANS_PER_TEXT = 8
"""A small index gives fewer than `MAX_PASSAGES`, because spans of the same text repeat each other."""

MIN_WORDS, MAX_WORDS = 2, 24
"""Length of a span, drawn log-uniformly: queries are short, but students must also read long ones."""

MAX_CHARACTERS = 160
"""Longer spans are cut: scripts without spaces have long words."""

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*(?=\S)|\n+")

BUILD_TEXTS_SQL = """
    SELECT title, text FROM chunks WHERE tenant = $tenant ORDER BY md5(concat($seed, ' ', chunk_id)), chunk_id LIMIT $n
"""
LOG_TEXTS_SQL = """
    SELECT title, left(text, $characters) AS text FROM documents WHERE tenant = $tenant
    ORDER BY md5(concat($seed, ' ', doc_id)), doc_id LIMIT $n
"""


def sample_passages(source: TrainingSource, tenant: str, seed: int, n_runs: int = 1) -> list[str]:
    """Draw titles and spans from a run's texts, at most `MAX_PASSAGES / n_runs`, sorted.

    Args:
        source: the run.
        tenant: tenant whose texts are read.
        seed: seed of the draw.
        n_runs: number of runs that share `MAX_PASSAGES`.
    """
    n_passages = MAX_PASSAGES // n_runs
    parameters: dict[str, object] = {"tenant": tenant, "seed": str(seed), "n": n_passages}
    if source.mined:
        parameters["characters"] = source.text_characters
    with source.run.tables("documents" if source.mined else "chunks").connect() as connection:
        sql = LOG_TEXTS_SQL if source.mined else BUILD_TEXTS_SQL
        rows = connection.sql(sql, params=parameters).to_arrow_table()
    titles = {title for title in rows["title"].to_pylist() if title and title.strip()}
    spans = draw_spans(rows["text"].to_pylist(), n_passages, seed)
    return sorted({*sorted(titles)[: n_passages // 4], *spans})[:n_passages]


def draw_spans(texts: Sequence[str], n: int, seed: int) -> list[str]:
    """Spans of consecutive words within a sentence, in the order of the texts, at most n.

    Args:
        texts: texts to draw from, each `MAX_SPANS_PER_TEXT` times at most.
        n: number of spans; blank ones are left out.
        seed: seed of the draw.
    """
    random = np.random.default_rng(seed)
    per_text = min(MAX_SPANS_PER_TEXT, -(-n // max(len(texts), 1)))
    spans = (_draw_span(text, random) for text in texts for _ in range(per_text))
    return [span for span in spans if span][:n]


def _draw_span(text: str, random: np.random.Generator) -> str:
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]
    if not sentences:
        return ""
    words = sentences[random.integers(len(sentences))].split()
    n_words = round(float(np.exp(random.uniform(log(MIN_WORDS), log(MAX_WORDS)))))
    start = int(random.integers(max(1, len(words) - n_words + 1)))
    return " ".join(words[start : start + n_words])[:MAX_CHARACTERS]
