"""The service of a small index on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from darklode.flows.open_index import ServedIndex, open_service
from darklode.flows.web.search import SearchConsole, search_app
from darklode.flows.web.server import ListenAddress, listen
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.index.source import TEXT_SCHEMA
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.serve.batching import RequestBatcher
from darklode.pipeline.serve.mapped_texts import IndexedTexts
from darklode.pipeline.serve.service import SearchService
from darklode.schemas.settings import Settings
from helpers.pages import serving
from helpers.review_run import TOKEN


@dataclass(frozen=True)
class Answering:
    """A service that answers."""

    url: str
    port: int
    served: ServedIndex


@contextmanager
def answering(folder: str, encoders: Sequence[str] = (), *, waiting: int = 512) -> Iterator[Answering]:
    """What `darklode serve` serves, on a free port."""
    with open_service(folder, encoders, None) as served, answered(served, waiting=waiting) as page:
        yield page


@contextmanager
def answered(served: ServedIndex, *, waiting: int = 512) -> Iterator[Answering]:
    """Any service, on a free port."""
    place, batches = (
        ListenAddress("127.0.0.1", 0, ()),
        RequestBatcher(served.service.answers, max_batch=64, waiting=waiting),
    )
    shown = SearchConsole("indexes/first", served.about, served.service, batches, Analyzer())
    with listen(place) as bound:
        with serving(search_app(shown, TOKEN, place.allowed_hosts), bound):
            yield Answering(place.addresses(bound, TOKEN)[0], bound.getsockname()[1], served)
        batches.close()


class Fixed(Retriever):
    """Finds the same rows for each query."""

    def __init__(self, *rows: int) -> None:
        self.name, self.rows = "fixed", rows

    def search(self, queries: list[str], depth: int) -> Hits:  # type: ignore[override]
        rows = np.array([self.rows[:depth]] * len(queries))
        return Hits(rows, np.full(rows.shape, 0.5, np.float32))


def two_systems(file: Path) -> ServedIndex:
    """Three texts, hostile ones among them, of which each system finds two."""
    said = ["reset the key", "<img src=x onerror=alert(1)> resets", "another " * 100]
    columns = {name: [f"{name} {row}" for row in range(3)] for name in TEXT_SCHEMA.names}
    texts = IndexedTexts([pa.table(columns | {"text": said, "title": [None, "<b>", "c"]}, schema=TEXT_SCHEMA)], file)
    service = SearchService("acme", texts, {"base": Fixed(0, 1), "runs/<i>": Fixed(1, 2)})
    return ServedIndex(service, Settings(), "3 texts")
