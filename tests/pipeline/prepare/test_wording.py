"""Which queries ask in the same words, and which of them stands for the others."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.prepare.wording import same_words
from helpers.runs import documents, put

CORPUS = """Drop events from test users. Convert CSV to JSON, and JSON to CSV. A table or a cable. Plans, prices in
Texas. Events arrive, routes and destinations. Kubernetes is supported. 如何管理依赖"""


def standing(run: Run, texts: list[str], uses: list[int] | None = None, tenants: list[str] | None = None) -> list[int]:
    n = len(texts)
    put(run, "documents", documents(doc_id=["a"], text=[CORPUS]))
    columns = {
        "tenant": pa.array(tenants or ["default"] * n, pa.string()),
        "text": pa.array(texts, pa.string()),
        "n_represented": uses or [1] * n,
    }
    return same_words(pa.table(columns), run.tables("documents")).tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("drop events from test users", "Drop events from test users?"),
        ("drop events from test users", "dropping an event from the test user"),
        ("drop events from test users", "drop evnets from test users"),
        ("drop events from test users", "drop events froom test users"),
        ("drop events from test users", "please drop my events from test users"),
        ("how can I drop events", "how to drop events"),
        ("install on kubernetes", "install on kubernets"),
        ("ｄｒｏｐ events", "drop events"),
        ("如何管理依赖", "如何管理依赖？"),
    ],
)
def test_the_same_words(run: Run, one: str, other: str) -> None:
    assert standing(run, [one, other]) == [0, 0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cost in iowa", "cost in texas"),
        ("24 inch table", "42 inch table"),
        ("delete a table", "delete a cable"),
        ("convert csv to json", "convert json to csv"),
        ("drop events", "drop events from test users"),
        ("when do events arrive", "how do events arrive"),
        ("events with a user", "events without a user"),
        ("style with css", "style with csv"),
        ("who can drop events", "who should drop events"),
        ("如何管理依赖", "如何管理事件"),
    ],
)
def test_other_needs(run: Run, one: str, other: str) -> None:
    assert standing(run, [one, other]) == [0, 1]


def test_the_one_that_is_spelled_right_stands_then_the_one_asked_most(run: Run) -> None:
    texts = ["drop evnets from test users", "drop event from test user", "Drop events from test users!"]
    assert standing(run, texts, [90, 2, 3]) == [2, 2, 2]


def test_a_pasted_key_is_compared_with_no_other_word(run: Run) -> None:
    """All that is one letter shorter than it would take 3.6 GB."""
    pasted = f"drop {'x' * 60_000}"
    assert standing(run, ["drop events", pasted, "drop evnets", f"{pasted}?"]) == [0, 1, 0, 1]


def test_tenants_never_mix(run: Run) -> None:
    assert standing(run, ["drop events"] * 4, tenants=["a", "b", "a", "b"]) == [0, 1, 0, 1]


def test_queries_without_a_word_stand_for_themselves(run: Run) -> None:
    assert standing(run, ["?", "??", ""]) == [0, 1, 2]
    assert standing(run, []) == []


def test_function_words_alone_are_compared_too(run: Run) -> None:
    assert standing(run, ["is it", "is it?", "can you"]) == [0, 0, 2]
