import re
from datetime import date
from pathlib import Path
from statistics import mean, median, pstdev
from typing import Any

import pyarrow as pa
import pytest
import yaml
from datasets import config, load_dataset

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report import statistics
from darklode.pipeline.report.card import card, mined_card
from darklode.pipeline.report.caveats import caveats
from darklode.pipeline.report.funnel import FUNNEL_STAGE, funnel
from darklode.schemas.label_tables import QRELS, VERDICTS
from darklode.schemas.settings import Settings
from darklode.schemas.tables import POOL, QUERIES, TABLES
from helpers.finished_run import finished_run
from helpers.runs import put, read
from helpers.small_log import mine, random_log


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = finished_run(str(tmp_path_factory.mktemp("card") / "run"))
    run.execute(run.plan(FUNNEL_STAGE, {}), lambda _tables, output: funnel(run, output, ()))
    return run


def front(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return loaded


def section(text: str, title: str) -> str:
    return re.split(r"\n## ", text.split(f"\n## {title}\n", 1)[1])[0]


def give_labels(run: Run, positives: dict[str, tuple[str, int]]) -> None:
    """Queries with their split and number of positives; each has one judged 0 too."""
    ids, splits = list(positives), [split for split, _ in positives.values()]
    n = len(ids)
    known = {"n_words": [1] * n, "language": ["en"] * n, "language_score": [1.0] * n, "cluster_id": [0] * n}
    rows = {"tenant": ["t"] * n, "query_id": ids, "text": ids, "n_represented": [1] * n, "split": splits}
    put(run, "queries", QUERIES.rows(rows | known))
    pairs = [(query, f"c{k}", int(k > 0)) for query, (_, many) in positives.items() for k in range(many + 1)]
    query_ids, chunk_ids, relevance = (list(column) for column in zip(*pairs, strict=True))
    columns = {"tenant": ["t"] * len(pairs), "query_id": query_ids, "chunk_id": chunk_ids, "relevance": relevance}
    put(run, "qrels", QRELS.rows(columns | {"source": ["judge"] * len(pairs)}))


def test_labels_are_the_papers_statistics(run: Run) -> None:
    give_labels(run, {"a": ("train", 1), "b": ("train", 7), "c": ("train", 4), "d": ("train", 0), "e": ("test", 0)})
    train, test, everything = statistics.labels(all_tables(run)).to_pylist()
    assert (train["split"], test["split"], everything["split"]) == ("train", "test", "all")
    assert (train["queries"], train["with_positives"], train["without_positives"]) == (4, 3, 1)
    expected = (mean([1, 7, 4]), median([1, 7, 4]), pytest.approx(pstdev([1, 7, 4])))
    assert (train["mean"], train["median"], train["deviation"]) == expected
    assert (test["positives"], test["mean"], test["deviation"]) == (0, None, None)
    assert (everything["queries"], everything["positives"]) == (5, 12)


def test_pool_statistics_count_queries_without_candidates(run: Run) -> None:
    give_labels(run, {"a": ("train", 1), "b": ("train", 1), "c": ("train", 1)})
    found = [("a", "1", ["x"]), ("a", "2", ["x", "y"]), ("a", "3", []), ("b", "1", ["y"])]
    columns = {"tenant": ["t"] * 4, "best_rank": [1] * 4, "fused_score": [0.1] * 4}
    named = zip(("query_id", "chunk_id", "retrievers"), zip(*found, strict=True), strict=True)
    put(run, "pool", POOL.rows(columns | {name: list(values) for name, values in named}))
    sizes = statistics.pool_sizes(all_tables(run)).to_pylist()
    assert sizes == [{"queries": 3, "min": 0, "mean": pytest.approx(4 / 3), "median": 1.0, "max": 3}]
    shares = statistics.pool_found_by(all_tables(run)).to_pylist()
    assert [(row["retrievers"], row["candidates"], row["share"]) for row in shares] == [
        (0, 1, 0.25),
        (1, 2, 0.5),
        (2, 1, 0.25),
    ]


def test_unreadable_verdicts_are_counted_apart(run: Run) -> None:
    ids = {"tenant": ["t"] * 3, "query_id": ["q"] * 3, "chunk_id": list("abc"), "judge_id": ["llm"] * 3}
    put(run, "verdicts", VERDICTS.rows(ids | {"relevant": [True, False, None]}))
    counts = {"verdicts": 3, "relevant": 1, "not_relevant": 1, "unreadable": 1, "contradicted": None}
    assert statistics.judges(all_tables(run)).to_pylist() == [{"judge_id": "llm"} | counts]


def test_contradicted_labels_are_counted_where_there_can_be_any(run: Run) -> None:
    ids = {"tenant": ["t"] * 4, "query_id": ["q"] * 4, "chunk_id": list("abcd"), "judge_id": ["llm"] * 4}
    put(run, "verdicts", VERDICTS.rows(ids | {"relevant": [True] * 4, "contradicted": [True, False, None, True]}))
    assert statistics.judges(all_tables(run))["contradicted"].to_pylist() == [2]
    (said,) = [one for one in caveats(all_tables(run), Settings()) if "contradict" in one]
    assert said.startswith("The log-probabilities of 2 verdicts contradict the judge's label")


def test_a_shortfall_of_negatives_is_counted(finished: Run) -> None:
    train, validation = statistics.triplets(all_tables(finished), 2).to_pylist()
    assert (train["rows"], train["mean_negatives"], train["short_rows"], train["missing_negatives"]) == (4, 2.0, 0, 0)
    assert (validation["rows"], validation["mean_negatives"], validation["min_negatives"]) == (4, 1.5, 1)
    assert (validation["short_rows"], validation["missing_negatives"]) == (2, 2)
    assert (train["queries"], train["source"]) == (2, "pooled")


def test_statistics_keep_tenants_with_the_same_ids_apart(finished: Run) -> None:
    sizes = statistics.sizes(all_tables(finished)).to_pylist()
    assert [row["tenant"] for row in sizes] == ["acme", "b/i rch"]
    assert all((row["documents"], row["chunks"], row["queries"]) == (2, 4, 4) for row in sizes)
    assert statistics.pool_sizes(all_tables(finished)).to_pylist()[0]["max"] == 4
    assert statistics.labels(all_tables(finished)).to_pylist()[-1]["queries"] == 8


def test_the_card_says_that_no_llm_judged(finished: Run) -> None:
    assert "no LLM and no human has judged this dataset" in card(finished, Settings())
    assert "do not compare neural retrievers" in card(finished, Settings())


def test_an_llms_verdicts_carry_no_such_warning(run: Run) -> None:
    columns = {"tenant": ["t"], "query_id": ["q"], "chunk_id": ["c"], "judge_id": ["some-llm@embedded"]}
    put(run, "verdicts", VERDICTS.rows(columns))
    assert "Warning" not in card(run, Settings())


def test_the_card_shows_every_part_of_the_run(finished: Run) -> None:
    text = card(finished, Settings(), ["The log\nwas  short."])
    assert "> **Warning:** The log was short." in text
    assert "| acme | 2 | 4 | 4 | 4 |" in section(text, "Input")
    assert "| clean | queries | 12 | queries | 8 | too long | 2 |" in section(text, "Funnel")
    assert "| embedded-1 | 32 | 12 | 20 | 0 |" in section(text, "Judge")
    assert "| train | 4 | 2 | 2 | 4 | 2 | 2 | 0 |" in section(text, "Labels")
    assert "to which every listed retriever contributed" in section(text, "Retriever audit")
    assert "| (all) | bm25 | 1 |" in section(text, "Retriever audit")
    assert "- pyarrow " in section(text, "Software")
    assert section(text, "Settings that differ from the defaults").strip() == "None."


def test_changed_settings_and_the_licence_are_named(finished: Run) -> None:
    settings = Settings.model_validate({"seed": 4, "pool": {"depth": 30}, "card": {"name": "X: y", "license": "mit"}})
    text = card(finished, settings)
    changed = section(text, "Settings that differ from the defaults")
    assert "- `seed`: `4` (default `13`)" in changed
    assert "- `pool.depth`: `30` (default `60`)" in changed
    assert "pool.budget" not in changed
    assert front(text)["pretty_name"] == "X: y"
    assert front(text)["license"] == "mit"
    assert "`mit`" in section(text, "Licence")


@pytest.mark.parametrize(
    ("changes", "language"),
    [
        ({}, None),
        ({"language": "en"}, ["en"]),
        ({"language": ["en", "zh"]}, ["en", "zh"]),
        ({"language": None}, None),
        ({"keep_all": True}, None),
    ],
)
def test_a_language_is_only_named_where_cleaning_made_sure_of_it(
    changes: dict[str, object], language: list[str] | None, run: Run
) -> None:
    settings = Settings.model_validate({"clean": changes})
    assert front(card(run, settings)).get("language") == language


def test_a_run_that_has_nothing_yet_has_a_card(run: Run) -> None:
    text = card(run, Settings())
    assert front(text)["size_categories"] == ["n<1K"]
    assert "configs" not in front(text)
    assert "## Labels" not in text


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where `datasets` keeps what it reads, without asking anybody."""
    monkeypatch.setattr(config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return str(tmp_path / "cache")


def loaded(run: Run, name: str, cache: str) -> dict[str, list[dict[str, Any]]]:
    return {split: list(rows) for split, rows in load_dataset(run.store.url, name, cache_dir=cache).items()}


def test_hugging_face_loads_each_config_by_its_splits(tmp_path: Path, offline: str) -> None:
    finished = finished_run(str(tmp_path / "run"), folders=True)
    finished.store.write("README.md", card(finished, Settings()).encode())
    tables = finished.tables("queries", "qrels", "triplets", "chunks")
    splits = {(row["tenant"], row["query_id"]): row["split"] for row in tables.read("queries").to_pylist()}
    for name in ("queries", "qrels", "triplets"):
        found = loaded(finished, name, offline)
        assert list(found) == [split for split in ("train", "validation", "test") if split in found]
        assert sum(map(len, found.values())) == tables.rows(name) > 0
        assert all(splits[row["tenant"], row["query_id"]] == split for split, rows in found.items() for row in rows)
    assert set(loaded(finished, "qrels", offline)) == {"train", "validation", "test"}
    corpus = loaded(finished, "corpus", offline)
    assert {split: len(rows) for split, rows in corpus.items()} == {"corpus": tables.rows("chunks")}
    named = load_dataset(finished.store.url, "qrels", split="test", cache_dir=offline)
    assert named.column_names == QRELS.schema.names


@pytest.mark.slow
def test_hugging_face_loads_a_mined_run_by_its_splits(run: Run, offline: str) -> None:
    mine(run, random_log(7))
    tested = {"tenant": "a", "query_id": "q", "query": "later", "kind": "unseen", "doc_id": "d1", "source": "click"}
    tested |= {"date": date(2026, 4, 1), "shares_positive": False}
    put(run, "mined_test", pa.Table.from_pylist([tested], TABLES["mined_test"].schema))
    run.store.write("README.md", mined_card(run, Settings()).encode())
    by_split: dict[str, set[str]] = {}
    for row in read(run, "triplets"):
        by_split.setdefault(str(row["split"]), set()).add(str(row["triplet_id"]))
    assert set(by_split) == {"train", "validation"}
    found = loaded(run, "triplets", offline)
    assert {split: {row["triplet_id"] for row in rows} for split, rows in found.items()} == by_split
    (only,) = load_dataset(run.store.url, "test", split="test", cache_dir=offline)
    assert (only["query"], only["doc_id"]) == ("later", "d1")
    assert {row["doc_id"] for row in loaded(run, "corpus", offline)["corpus"]} >= {"d1"}


@pytest.mark.slow
def test_a_card_says_where_files_hold_rows_that_changed(run: Run) -> None:
    mine(run, random_log(7))
    assert "have changed since" not in mined_card(run, Settings())
    (row, *_) = run.tables("triplets").read("triplets").to_pylist()
    put(run, "triplets_changed", pa.Table.from_pylist([row], TABLES["triplets_changed"].schema))
    assert "1 rows in `triplets` have changed since" in mined_card(run, Settings())


def test_a_run_of_an_earlier_version_whose_tables_have_no_folders_lists_the_corpus_alone(run: Run) -> None:
    put(run, "chunks", rows_of("chunks", finished_run(f"{run.store.url}-of")))
    put(run, "qrels", rows_of("qrels", Run(f"{run.store.url}-of")))
    assert [one["config_name"] for one in front(card(run, Settings()))["configs"]] == ["corpus"]


def rows_of(name: str, run: Run) -> pa.Table:
    return run.tables(name).read(name)
