from pathlib import Path
from urllib.parse import unquote

import pytest
from datasets import Dataset, config, get_dataset_config_names, get_dataset_split_names, load_dataset

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from darklode.schemas.label_tables import QRELS
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, TENANTS, finished_run
from helpers.runs import put


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return str(tmp_path / "cache")


def split_of(folder: Path, name: str, split: str, cache: str) -> Dataset:
    """Load the way MTEB's RetrievalDatasetLoader does: the split of that name, or the config's only one."""
    names = get_dataset_split_names(str(folder), config_name=name)
    if split not in names:
        assert len(names) == 1
        split = names[0]
    return load_dataset(str(folder), name, split=split, cache_dir=cache)


def test_datasets_loads_the_three_configs_from_the_folder(tmp_path: Path, offline: str) -> None:
    export(finished_run(str(tmp_path / "run"), ("acme",)), "mteb", tmp_path / "out")
    assert sorted(get_dataset_config_names(str(tmp_path / "out"))) == ["corpus", "default", "queries"]
    corpus = load_dataset(str(tmp_path / "out"), "corpus", split="test", cache_dir=offline)
    assert corpus.column_names == ["id", "title", "text"]
    rows = {unquote(row["id"]): (row["title"], row["text"]) for row in corpus}
    assert rows == {
        CHUNK_IDS[0]: ("Guide › Keys › Reset", "one\n\n- a list\ttab"),
        CHUNK_IDS[1]: ("Guide", 'He said "no"'),
        CHUNK_IDS[2]: ("Top", "naïve ☃ \\n"),
        CHUNK_IDS[3]: ("", "plain"),
    }


@pytest.mark.parametrize(("split", "asked", "answered"), [("train", 2, 1), ("validation", 1, 1), ("test", 1, 1)])
def test_each_split_is_read_with_its_queries_and_positives(
    split: str, asked: int, answered: int, tmp_path: Path, offline: str
) -> None:
    export(finished_run(str(tmp_path / "run")), "mteb", tmp_path / "out")
    corpus, queries, qrels = (
        split_of(tmp_path / "out", name, split, offline) for name in ("corpus", "queries", "default")
    )
    assert queries.column_names == ["id", "text"]
    assert qrels.column_names == ["query-id", "corpus-id", "score"]
    assert qrels.features["score"].dtype == "int32"
    assert (len(corpus), len(queries)) == (len(TENANTS) * len(CHUNK_IDS), len(TENANTS) * asked)
    assert len(set(qrels["query-id"])) == len(TENANTS) * answered
    assert set(qrels["query-id"]) <= set(queries["id"])
    assert set(qrels["corpus-id"]) <= set(corpus["id"])
    assert qrels["score"] == [1] * len(TENANTS) * answered * 2
    assert set(queries["text"]) <= set(QUERY_TEXTS)


def test_a_split_without_positives_is_not_listed(tmp_path: Path, offline: str) -> None:
    given, run = finished_run(str(tmp_path / "run"), ("acme",)).tables(), Run(str(tmp_path / "train only"))
    put(run, "chunks", given.read("chunks"))
    put(run, "queries", given.read("queries"))
    put(run, "qrels", given.sql(f"SELECT * FROM qrels WHERE query_id = '{QUERY_IDS[0]}'").cast(QRELS.schema))
    export(run, "mteb", tmp_path / "out")
    assert get_dataset_split_names(str(tmp_path / "out"), config_name="default") == ["train"]
    assert len(split_of(tmp_path / "out", "default", "train", offline)) == 2
