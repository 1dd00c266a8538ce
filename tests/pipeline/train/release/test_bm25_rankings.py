"""BM25 over the texts of the runs: as labels and as rankings."""

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.release.bm25_rankings import Bm25Cache, Bm25Rankings

from ..conftest import Adapted


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    tables = adapted.out.tables()
    return Task.from_tables(tables, adapted.base.open(tables), same_document=False)


def test_bm25_teaches_a_text_that_has_the_topic(adapted: Adapted, task: Task) -> None:
    backwards = task.with_queries(np.arange(len(task.train))[::-1])
    for given in (task, backwards):
        found = Bm25Rankings(adapted.base, task.frozen).training_pairs(given)
        assert (np.diff(found.pair_query) > 0).all(), "one positive each, in the order of the queries"
    found = Bm25Rankings(adapted.base, task.frozen).training_pairs(task)
    rows = np.array([np.flatnonzero(task.frozen.position_of == one)[0] for one in found.pair_position])
    texts = task.frozen.texts["text_id"].take(pa.array(rows)).to_pylist()
    asked = task.train.ids.take(pa.array(found.pair_query)).to_pylist()
    assert np.mean([text.partition("#")[0] == query for text, query in zip(texts, asked, strict=True)]) > 0.9


def test_rankings_are_by_descending_score_and_as_deep_as_asked(adapted: Adapted, task: Task) -> None:
    rows = Bm25Rankings(adapted.base, task.frozen).rankings(task.validation, 2).to_pandas()
    assert rows.groupby("query_id")["rank"].apply(list).isin([[1], [1, 2]]).all()
    assert rows.groupby("query_id")["score"].apply(lambda scores: scores.is_monotonic_decreasing).all()
    assert (rows.groupby("query_id")["text_id"].first().str.partition("#")[0] == sorted(set(rows["query_id"]))).all()


def test_indexes_are_built_once_for_the_same_texts(
    adapted: Adapted, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, built = Bm25Rankings._corpora, list[Bm25Rankings]()

    def counted(rankings: Bm25Rankings) -> object:
        built.append(rankings)
        return real(rankings)

    monkeypatch.setattr(Bm25Rankings, "_corpora", counted)
    cache, tables = Bm25Cache(), adapted.out.tables()
    first = Bm25Rankings(adapted.base, task.frozen, cache).rankings(task.validation, 5)
    again = Bm25Rankings(adapted.base, adapted.base.open(tables), cache).rankings(task.validation, 5)
    assert first.equals(again)
    assert len(built) == 1
    fewer = adapted.base.index_of_texts(tables.read("adaptation_texts")[:-1])
    Bm25Rankings(adapted.base, fewer, cache)
    assert len(built) == 2
