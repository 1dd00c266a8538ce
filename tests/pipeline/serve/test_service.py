"""Questions to several systems at several depths, answered together as they would be alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from darklode.pipeline.index.source import TEXT_SCHEMA
from darklode.pipeline.retrieve.retrievers.port import Hits, Retriever
from darklode.pipeline.serve.mapped_texts import IndexedTexts
from darklode.pipeline.serve.service import SearchRequest, SearchService, TenantServices


class Lengths(Retriever):
    """Finds the texts from the one on whose row is the query's length; nothing beyond the last."""

    def __init__(self, name: str, step: int) -> None:
        self.name, self.step = name, step
        self.asked: list[list[str]] = []

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        self.asked.append(list(queries))
        rows = np.array([[len(query) + self.step * place for place in range(depth)] for query in queries])
        return Hits(np.where(rows < 5, rows, -1), np.where(rows < 5, 1 - rows / 10, np.nan).astype(np.float32))


def service(folder: Path) -> tuple[SearchService, dict[str, Lengths]]:
    columns = {name: [f"{name} {row}" for row in range(5)] for name in TEXT_SCHEMA.names}
    systems = {"one": Lengths("one", 1), "two": Lengths("two", 2)}
    return SearchService(
        "acme", IndexedTexts([pa.table(columns, schema=TEXT_SCHEMA)], folder / "texts"), systems
    ), systems


def test_a_batch_gives_what_each_question_gives_alone(tmp_path: Path) -> None:
    served, systems = service(tmp_path)
    questions = [
        SearchRequest("two", "ab", 3),
        SearchRequest("one", "a", 2),
        SearchRequest("one", "abcd", 2),
        SearchRequest("one", "a", 3),
    ]
    together = served.answers(questions)
    assert systems["one"].asked == [["a", "abcd"], ["a"]]
    assert [[(row["rank"], row["text_id"]) for row in one] for one in together] == [
        [(1, "text_id 2"), (2, "text_id 4")],
        [(1, "text_id 1"), (2, "text_id 2")],
        [(1, "text_id 4")],
        [(1, "text_id 1"), (2, "text_id 2"), (3, "text_id 3")],
    ]
    assert together == [served.answers([one])[0] for one in questions]
    assert set(together[0][0]) == {"rank", "text_id", "doc_id", "title", "heading", "text", "score"}
    assert served.answers([SearchRequest("one", "abcdefgh", 2)]) == [[]]


def test_each_request_reaches_its_own_tenants_service(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (first, asked_first), (second, asked_second) = service(tmp_path / "a"), service(tmp_path / "b")
    both = TenantServices({"acme": first, "birch": second})
    requests = [SearchRequest("one", "a", 2, "birch"), SearchRequest("one", "ab", 2, "acme")]
    assert both.answers(requests) == [second.answers(requests[:1])[0], first.answers(requests[1:])[0]]
    assert asked_first["one"].asked[0] == ["ab"]
    assert asked_second["one"].asked[0] == ["a"]
    assert both.tenants == ("acme", "birch")


def test_tenants_have_systems_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (first, _), (second, _) = service(tmp_path / "a"), service(tmp_path / "b")
    only_one = replace(second, retrievers={"one": second.retrievers["one"]})
    both = TenantServices({"birch": only_one, "acme": first})
    assert (both.systems("birch"), both.systems("acme"), both.systems()) == (["one"], ["one", "two"], ["one", "two"])
