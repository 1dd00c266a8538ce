import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from beir.datasets.data_loader import GenericDataLoader

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from darklode.schemas.label_tables import QRELS
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, TENANTS, finished_run
from helpers.runs import put

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # beir leaves the closing to Python


def load(folder: Path, split: str) -> tuple[dict[str, Any], dict[str, str], dict[str, dict[str, int]]]:
    """Corpus, queries and qrels as beir reads them; queries without qrels are dropped."""
    found: tuple[dict[str, Any], dict[str, str], dict[str, dict[str, int]]] = GenericDataLoader(str(folder)).load(split)
    return found


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
