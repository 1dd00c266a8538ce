"""Generated queries as labels of their own: whose texts the runs have, at these texts, and nothing else."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.generated import GeneratedQueries, generated_in
from darklode.pipeline.train.data.labels import Labels
from darklode.schemas.laws import LawSettings
from darklode.schemas.tables import TABLES
from helpers.runs import put

NONE = np.empty(0, np.int64)


class Texts(SimpleNamespace):
    """Two runs' texts, the second of which has two."""

    def __len__(self) -> int:
        return 3


def folder_of(root: Path, hashes: dict[str, str]) -> Run:
    """A folder with a query for each text, by what the text says."""
    run = Run(str(root))
    about = {"tenant": "t", "title": None, "heading": None, "position": 0, "start": 0, "end": 1, "text": "x"}
    chunks = [
        about | {"chunk_id": f"c{query}", "doc_id": query, "content_hash": said} for query, said in hashes.items()
    ]
    triplet = {"tenant": "t", "positive": "x", "negative_ids": [], "negatives": [], "negative_scores": []}
    triplet |= {"split": "train", "source": "generated"}
    triplets = [
        triplet | {"triplet_id": query, "query_id": query, "query": f"how {query}", "positive_id": f"c{query}"}
        for query in hashes
    ]
    put(run, "chunks", pa.Table.from_pylist(chunks, schema=TABLES["chunks"].schema))
    put(run, "triplets", pa.Table.from_pylist(triplets, schema=TABLES["triplets"].schema))
    return run


def task() -> Task:
    """Its queries have their lengths for vectors."""
    texts = {"tenant": ["t"] * 3, "index": [0, 1, 1], "text_id": ["a", "b", "c"], "content_hash": ["ha", "hb", "hc"]}
    frozen: Any = Texts(
        texts=pa.table(texts),
        position_of=np.array([0, 2, 1]),
        encode=lambda asked: np.array([[len(one)] for one in asked], np.float32),
    )
    labels = pa.table({"query_id": pa.array([], pa.string())})
    none = QuerySet(pa.array(["own"]), np.zeros((1, 1), np.float32), np.zeros(1, np.int32), labels)
    return Task(frozen, none, none, NONE, NONE, Labels(NONE, 3), Labels(NONE, 3), None)


def test_each_query_teaches_its_text_in_the_run_that_has_it(tmp_path: Path) -> None:
    taught = GeneratedQueries(folder_of(tmp_path, {"1": "hb", "2": "gone", "3": "ha"})).training_task(task(), 0)
    assert taught.train.ids.to_pylist() == ["1", "3"]
    assert list(taught.train.texts) == ["how 1", "how 3"]
    assert taught.train.index.tolist() == [1, 0]
    assert list(zip(taught.pair_query.tolist(), taught.pair_position.tolist(), strict=True)) == [(0, 2), (1, 0)]
    assert taught.labels.contains(np.array([0, 1]), np.array([2, 0])).all()


def test_queries_of_other_texts_teach_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no query for a text of the runs"):
        GeneratedQueries(folder_of(tmp_path, {"1": "gone"})).training_task(task(), 0)


def test_what_is_read_names_it(tmp_path: Path) -> None:
    one, same = (GeneratedQueries(folder_of(tmp_path / name, {"1": "ha"})) for name in "ab")
    assert one.content() == same.content() != GeneratedQueries(folder_of(tmp_path / "c", {"1": "hb"})).content()


def test_sources_that_are_no_names_are_folders() -> None:
    found = generated_in(LawSettings(label_sources=("labels", "runs/made", "shuffled")))
    assert list(found) == ["runs/made"]
