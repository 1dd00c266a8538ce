"""Answers of an engine as hits: what is asked, what is kept, and what is counted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import DarklodeError, InputError
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.external import RANKING_ROWS, Answer, ExternalRetriever, LiveSearch
from darklode.pipeline.retrieve.retrievers.external_hits import HitMapper
from helpers.external import external_run


class Shelf(LiveSearch):
    """Answers every query with the same documents, the last query first; fails after some answers."""

    where = "shelf"

    def __init__(self, ids: Sequence[str], version: str | None = "1", fails_after: int | None = None) -> None:
        self._ids, self._version, self._fails_after = list(ids), version, fails_after
        self.queries: list[tuple[str, int]] = []

    def version(self) -> str | None:
        return self._version

    def search(self, queries: Sequence[str], k: int) -> Iterator[tuple[int, Answer]]:
        for number in reversed(range(len(queries))):
            if len(self.queries) == self._fails_after:
                raise DarklodeError("the shelf broke")
            self.queries.append((queries[number], k))
            yield number, (self._ids[:k], [1.0] * len(self._ids[:k]))


@pytest.fixture
def mapper(tmp_path: Path) -> HitMapper:
    chunks = TenantChunks(external_run(str(tmp_path / "run")).tables("chunks"), "acme")
    return HitMapper(Corpus(chunks.batches, chunks.n, tmp_path, None, chunks), "best")


def retriever(shelf: Shelf, mapper: HitMapper, root: Path) -> ExternalRetriever:
    return ExternalRetriever("shelf", shelf, mapper, 10, KeyedStore(str(root), RANKING_ROWS), "shelf settings")


def test_a_text_is_asked_once_and_a_blank_one_never(mapper: HitMapper, tmp_path: Path) -> None:
    shelf = Shelf(["faq", "manual"])
    hits = retriever(shelf, mapper, tmp_path / "cache").search(["reset", " ", "reset", "billing"], 2)
    assert hits.rows.tolist() == [[3, 1], [-1, -1], [3, 1], [2, 0]]
    assert shelf.queries == [("billing", 2), ("reset", 2)]


def test_answers_are_kept_for_their_version_and_depth(mapper: HitMapper, tmp_path: Path) -> None:
    root = tmp_path / "cache"
    retriever(Shelf(["faq"]), mapper, root).search(["reset", "billing"], 2)
    again, deeper, newer = Shelf(["manual"]), Shelf(["manual"]), Shelf(["manual"], version="2")
    assert retriever(again, mapper, root).search(["billing", "reset"], 2).rows[:, 0].tolist() == [2, 3]
    assert again.queries == []
    assert retriever(deeper, mapper, root).search(["reset"], 3).rows[0, 0] == 1
    assert retriever(newer, mapper, root).search(["reset"], 2).rows[0, 0] == 1
    unknown = Shelf(["manual"], version=None)
    for _ in range(2):
        retriever(unknown, mapper, root).search(["reset"], 2)
    assert len(unknown.queries) == 2


def test_answers_before_a_failure_are_kept(mapper: HitMapper, tmp_path: Path) -> None:
    root, texts = tmp_path / "cache", ["reset", "billing", "shipping"]
    with pytest.raises(DarklodeError, match="the shelf broke"):
        retriever(Shelf(["faq"], fails_after=2), mapper, root).search(texts, 2)
    shelf = Shelf(["faq"])
    retriever(shelf, mapper, root).search(texts, 2)
    assert shelf.queries == [("reset", 2)]


def test_unknown_ids_are_counted_and_many_alone_are_an_error(mapper: HitMapper, tmp_path: Path) -> None:
    some = retriever(Shelf(["blog", "faq"]), mapper, tmp_path / "cache")
    some.search(["reset", "billing"], 2)
    assert some.unused.select(["id", "file", "payload"]).to_pylist() == [
        {"id": "blog", "file": "shelf", "payload": "in 2 rankings"}
    ]
    none = retriever(Shelf([f"product {number}" for number in range(10)]), mapper, tmp_path / "other")
    none.search([f"text {number}" for number in range(9)], 10)
    with pytest.raises(InputError, match="none of 100 hits is a chunk or document of tenant acme; their ids are 'prod"):
        none.search(["text"], 10)
