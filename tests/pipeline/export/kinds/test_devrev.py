from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from datasets import Dataset, config, load_dataset

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.formats import export
from darklode.schemas.label_tables import QRELS
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, TENANTS, finished_run
from helpers.runs import put

CONFIGS = (("annotated_queries", "train"), ("knowledge_base", "corpus"), ("test_queries", "test"))


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Dataset]:
    """The three configs, named as a user of `devrev/search` names them."""
    monkeypatch.setattr(config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    export(finished_run(str(tmp_path / "run")), "devrev", tmp_path / "out")
    folder, cache = str(tmp_path / "out"), str(tmp_path / "cache")
    return {name: load_dataset(folder, name, split=split, cache_dir=cache) for name, split in CONFIGS}


def own(name: str) -> str:
    return unquote(name.split("/", 1)[1])


def test_annotated_queries_have_their_golden_chunks(loaded: dict[str, Dataset]) -> None:
    annotated, base = loaded["annotated_queries"], loaded["knowledge_base"]
    assert annotated.column_names == ["query_id", "query", "retrievals"]
    assert base.column_names == ["id", "text", "title"]
    chunks = {row["id"]: row for row in base}
    assert len(chunks) == len(base) == len(TENANTS) * len(CHUNK_IDS)
    asked = {own(row["query_id"]): row["query"] for row in annotated}
    assert asked == {QUERY_IDS[place]: QUERY_TEXTS[place] for place in (0, 2)}
    for row in annotated:
        assert {own(golden["id"]) for golden in row["retrievals"]} == {CHUNK_IDS[0], CHUNK_IDS[2]}
        assert all(golden == chunks[golden["id"]] for golden in row["retrievals"])


def test_test_queries_have_no_labels_anywhere(loaded: dict[str, Dataset], tmp_path: Path) -> None:
    test = loaded["test_queries"]
    assert test.column_names == ["query_id", "query"]
    assert [(own(row["query_id"]), row["query"]) for row in test] == [(QUERY_IDS[3], QUERY_TEXTS[3])] * len(TENANTS)
    assert not set(test["query_id"]) & set(loaded["annotated_queries"]["query_id"])
    assert f"{len(TENANTS)} queries without a golden chunk" in (tmp_path / "out" / "README.md").read_text()


def test_a_run_labelled_only_in_its_test_split_is_refused(tmp_path: Path) -> None:
    given, run = finished_run(str(tmp_path / "run"), ("t",)).tables(), Run(str(tmp_path / "test only"))
    for table in ("chunks", "queries"):
        put(run, table, given.read(table))
    labels = given.sql("SELECT qrels.* FROM qrels JOIN queries USING (tenant, query_id) WHERE split = 'test'")
    put(run, "qrels", labels.cast(QRELS.schema))
    with pytest.raises(ExportError, match="no positives outside its test split"):
        export(run, "devrev", tmp_path / "out")


def test_golden_chunks_come_by_relevance(tmp_path: Path) -> None:
    given, run = finished_run(str(tmp_path / "run"), ("t",)).tables(), Run(str(tmp_path / "graded"))
    for table in ("chunks", "queries"):
        put(run, table, given.read(table))
    graded = {"tenant": ["t"] * 3, "query_id": [QUERY_IDS[0]] * 3, "chunk_id": list(CHUNK_IDS[:3])}
    put(run, "qrels", QRELS.rows(graded | {"relevance": [1, 0, 3], "source": ["judge"] * 3}))
    export(run, "devrev", tmp_path / "out")
    row = pq.read_table(tmp_path / "out" / "annotated_queries.parquet").to_pylist()[0]
    assert [unquote(golden["id"]) for golden in row["retrievals"]] == [CHUNK_IDS[2], CHUNK_IDS[0]]
    assert not (tmp_path / "out" / "test_queries.parquet").exists()
