"""An LLM judge with another prompt than its settings name."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from darklode.pipeline.base.remote.background import Background
from darklode.pipeline.judge.kinds.llm import LlmJudgeKind
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.judge.probe.alterations import ProbeText
from darklode.pipeline.judge.probe.sample import pairs_of
from darklode.pipeline.judge.teach.examples import TaughtPair
from darklode.pipeline.judge.threshold import Thresholded
from darklode.schemas.settings import CacheSettings


class PromptedJudge:
    """Judges pairs with a given prompt; replies are kept in the ledger under the prompt's own `judge_id`.

    Args:
        settings: settings of the judge; another threshold than the default applies to every prompt.
        cache: location of the ledger.

    Attributes:
        n_requested: pairs that a server was asked for so far.
    """

    def __init__(self, settings: LlmJudgeKind, cache: CacheSettings) -> None:
        self._settings, self._cache = settings, cache
        self.n_requested = 0

    def __call__(self, prompt: str, pairs: Sequence[TaughtPair]) -> list[bool | None]:
        """Labels of the pairs, in their order; None: unreadable.

        Args:
            prompt: name or folder of the prompt.
            pairs: pairs of the run.
        """
        settings = self._settings.model_copy(update={"prompt": prompt})
        with_ledger = LedgerJudge(settings.source(self._cache), Ledger(self._cache.root), settings.max_attempts)
        default = type(settings).model_fields["threshold"].default
        judge: Judge = with_ledger if settings.cut == default else Thresholded(with_ledger, settings.cut)
        order = sorted(range(len(pairs)), key=lambda row: (pairs[row].query_id, pairs[row].chunk_id))
        rows = pairs_of(_row(pairs[row]) for row in order)
        _ = judge.judge_id  # may wait for a server, which must not happen in the event loop's thread
        with Background() as background:
            replies: pa.Table = background.run(judge.judge(rows), lambda: None)
        self.n_requested += with_ledger.n_requested
        labels: list[bool | None] = [None] * len(pairs)
        for row, label in zip(order, replies["relevant"].to_pylist(), strict=True):
            labels[row] = label
        return labels


def _row(pair: TaughtPair) -> dict[str, str | None]:
    texts = ProbeText(pair.query, pair.title, pair.heading, pair.chunk)
    ids = {"tenant": pair.tenant, "query_id": pair.query_id, "chunk_id": pair.chunk_id, "query": pair.query}
    hashes = {"query_hash": texts.query_hash, "chunk_hash": texts.chunk_hash}
    return ids | hashes | {"title": pair.title, "heading": pair.heading, "text": pair.chunk}
