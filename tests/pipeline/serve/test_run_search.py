"""A tenant's texts as they are searched: the run's own order and indexes, and a mined run's documents."""

from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.serve.run_search import TenantDocuments, TenantIndex
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.tables import TABLES
from helpers.adapted import TENANT, word
from helpers.runs import documents, put


def index_of(root: Path, scratch: Path) -> TenantIndex:
    return TenantIndex(TrainingSource(Run(str(root / "run")), 0, mined=False, text_characters=9), TENANT, scratch)


def test_each_system_has_a_list_for_each_query(shipped: Path, tmp_path: Path) -> None:
    index, bm25 = index_of(shipped, tmp_path), own_retrievers()["bm25"]
    found = index.top({"one": bm25, "two": bm25}, [f"how {word(0)}", "nothing", word(7)], 2).to_pylist()
    places = [(row["system"], row["query"], row["rank"], row["text_id"][:9]) for row in found if row["rank"] == 1]
    wanted = [(0, "train-000"), (2, "train-001")]
    assert places == [(system, query, 1, text) for system in ("one", "two") for query, text in wanted]


def test_the_index_of_the_run_is_built_once(shipped: Path, tmp_path: Path) -> None:
    systems = {"bm25": own_retrievers()["bm25"]}
    index_of(shipped, tmp_path).top(systems, [word(0)], 1)
    files = {path: path.stat().st_mtime_ns for path in (shipped / "run" / "indexes").rglob("*.npy")}
    assert files
    index_of(shipped, tmp_path).top(systems, [word(7)], 1)
    assert {path: path.stat().st_mtime_ns for path in files} == files


def test_texts_are_shown_by_their_ids(shipped: Path, tmp_path: Path) -> None:
    words = index_of(shipped, tmp_path).texts_by_id(["train-001#0", "train-000#1", "gone"])
    assert {name: row["doc_id"] for name, row in words.items()} == {
        "train-000#1": "train-000-1",
        "train-001#0": "train-001-0",
    }
    assert words["train-001#0"]["text"].startswith(word(7))


def test_a_mined_run_is_searched_document_by_document(run: Run, tmp_path: Path) -> None:
    put(run, "documents", documents(doc_id=["b", "a"], text=["paint the wall", "reset the badge"]))
    for name in ("triplets", "mined_test", "query_clusters"):
        put(run, name, TABLES[name].empty())
    source = TrainingSource(run, 0, mined=True, text_characters=9)
    index = TenantIndex(source, "default", tmp_path)
    found = index.top({"bm25": own_retrievers()["bm25"]}, ["reset"], 3).to_pylist()
    assert [row["text_id"] for row in found] == ["a"]
    assert index.texts_by_id(["a"])["a"]["text"] == "reset the"
    assert TenantDocuments(source, "default").chunk_ids.to_pylist() == ["a", "b"]


def test_a_tenant_without_texts_is_refused(shipped: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="has no text of tenant nobody"):
        TenantIndex(TrainingSource(Run(str(shipped / "run")), 0, mined=False, text_characters=9), "nobody", tmp_path)
