import csv
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, TENANTS, finished_run

from conftest import put
from pipeline.artifacts import Run
from pipeline.export import export
from schemas.tables import QRELS


def load(folder: Path, split: str) -> tuple[dict[str, Any], dict[str, str], dict[str, dict[str, int]]]:
    """Read the way beir's GenericDataLoader does: it drops queries without qrels, and fails on qrels without query."""
    corpus, queries, qrels = {}, {}, {}
    with (folder / "corpus.jsonl").open(encoding="utf8") as file:
        for line in file:
            row = json.loads(line)
            corpus[row.get("_id")] = {"text": row.get("text"), "title": row.get("title")}
    with (folder / "queries.jsonl").open(encoding="utf8") as file:
        queries = {row["_id"]: row["text"] for row in map(json.loads, file)}
    with (folder / "qrels" / f"{split}.tsv").open(encoding="utf-8") as file:
        reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_MINIMAL)
        assert next(reader) == ["query-id", "corpus-id", "score"]
        for query, chunk, score in reader:
            qrels.setdefault(query, {})[chunk] = int(score)
    return corpus, {query: queries[query] for query in qrels}, qrels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(finished_run(str(tmp_path / "run"), ("acme",)), "beir", tmp_path / "out")
    return tmp_path / "out"


def test_every_chunk_query_and_positive_comes_back(folder: Path) -> None:
    corpus, queries, qrels = load(folder, "dev")
    assert {unquote(chunk) for chunk in corpus} == set(CHUNK_IDS)
    assert {unquote(query): text for query, text in queries.items()} == {QUERY_IDS[2]: QUERY_TEXTS[2]}
    found = {unquote(query): {unquote(chunk): n for chunk, n in of.items()} for query, of in qrels.items()}
    assert found == {QUERY_IDS[2]: {CHUNK_IDS[0]: 1, CHUNK_IDS[2]: 1}}
    assert set(qrels["q%253"]) <= set(corpus)


def test_a_title_is_the_documents_and_the_headings(folder: Path) -> None:
    corpus, _, _ = load(folder, "test")
    titles = [row["title"] for _, row in sorted(corpus.items(), key=lambda item: item[0][-1])]
    assert titles == ["Guide › Keys › Reset", "Guide", "Top", ""]
    assert corpus["guide/My%20page.md#1"]["text"] == "one\n\n- a list\ttab"


def test_a_query_without_positives_is_in_no_qrels_but_is_kept(folder: Path) -> None:
    _, queries, _ = load(folder, "train")
    assert [unquote(query) for query in queries] == [QUERY_IDS[0]]
    assert len((folder / "queries.jsonl").read_text(encoding="utf8").splitlines()) == len(QUERY_IDS) + 1  # U+2028


def test_a_split_without_positives_has_no_file(tmp_path: Path) -> None:
    given = finished_run(str(tmp_path / "run"), ("acme",))
    run = Run(str(tmp_path / "train only"))
    put(run, "chunks", given.tables().read("chunks"))
    put(run, "queries", given.tables().read("queries"))
    put(run, "qrels", given.tables().sql("SELECT * FROM qrels WHERE query_id = 'q 1'").cast(QRELS.schema))
    export(run, "beir", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "qrels").iterdir()] == ["train.tsv"]


def test_ids_of_several_tenants_are_kept_apart_and_map_back(tmp_path: Path) -> None:
    export(finished_run(str(tmp_path / "run")), "beir", tmp_path / "out")
    corpus, _, _ = load(tmp_path / "out", "test")
    with (tmp_path / "out" / "id_map.jsonl").open(encoding="utf8") as file:
        known = {row["exported"]: row for row in map(json.loads, file)}
    assert len(corpus) == len(TENANTS) * len(CHUNK_IDS)
    back = {(known[chunk]["tenant"], known[chunk]["id"]) for chunk in corpus}
    assert back == {(tenant, chunk) for tenant in TENANTS for chunk in CHUNK_IDS}
    for exported in corpus:
        tenant, chunk = exported.split("/", 1)
        assert (unquote(tenant), unquote(chunk)) == (known[exported]["tenant"], known[exported]["id"])
