"""Read line by line and tab by tab, as MS MARCO's own `load_reference` and trainers of triples do."""

from pathlib import Path
from urllib.parse import unquote

import ir_measures
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.export.formats import export
from darklode.schemas.tables import TRIPLETS
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, TENANTS, finished_run
from helpers.runs import put
from helpers.triplet_rows import triplet_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(finished_run(str(tmp_path / "run")), "msmarco", tmp_path / "out")
    return tmp_path / "out"


def rows(file: Path, columns: int) -> list[tuple[str, ...]]:
    """The cells of each line as `for line in open(file)` gives it, whatever ends a line there."""
    with file.open(encoding="utf8") as lines:
        cells = [tuple(line.rstrip("\n").split("\t")) for line in lines]
    assert {len(row) for row in cells} == {columns}
    return cells


def own(name: str) -> str:
    return unquote(name.split("/", 1)[1])


def test_the_collection_and_the_queries_are_lines(folder: Path) -> None:
    collection = dict(rows(folder / "collection.tsv", 2))
    assert len(collection) == len(TENANTS) * len(CHUNK_IDS)
    texts = ("one - a list tab", 'He said "no"', "naïve ☃ \\n", "plain")
    assert {own(pid): text for pid, text in collection.items()} == dict(zip(CHUNK_IDS, texts, strict=True))
    queries = {name: rows(folder / f"queries.{name}.tsv", 2) for name in ("train", "dev", "test")}
    named = {name: [own(qid) for qid, _ in of] for name, of in queries.items()}
    assert {name: set(of) for name, of in named.items()} == {
        "train": {QUERY_IDS[0], QUERY_IDS[1]},
        "dev": {QUERY_IDS[2]},
        "test": {QUERY_IDS[3]},
    }
    assert {text for _, text in queries["train"]} == {"reset the key", 'say "hello"'}
    assert {text for _, text in queries["test"]} == {"ünïcode line"}
    assert all(pid.split() == [pid] for pid in collection)


@pytest.mark.parametrize(("split", "query"), [("train", 0), ("dev", 2), ("test", 3)])
def test_qrels_are_the_positives(split: str, query: int, folder: Path) -> None:
    qrels = rows(folder / f"qrels.{split}.tsv", 4)
    wanted = [(QUERY_IDS[query], "0", CHUNK_IDS[chunk], "1") for chunk in (0, 2)] * len(TENANTS)
    assert sorted((own(qid), zero, own(pid), score) for qid, zero, pid, score in qrels) == sorted(wanted)
    read = list(ir_measures.read_trec_qrels(str(folder / f"qrels.{split}.tsv")))
    assert [(one.query_id, one.doc_id, one.relevance) for one in read] == [(q, p, int(s)) for q, _, p, s in qrels]


def test_triples_are_the_same_as_texts_and_as_ids(folder: Path) -> None:
    collection, queries = dict(rows(folder / "collection.tsv", 2)), dict(rows(folder / "queries.train.tsv", 2))
    named = rows(folder / "qidpidtriples.train.tsv", 3)
    assert len(named) == len(set(named)) == len(TENANTS) * 4
    assert rows(folder / "triples.train.tsv", 3) == [(queries[q], collection[p], collection[n]) for q, p, n in named]
    wanted = {(QUERY_IDS[0], CHUNK_IDS[p], CHUNK_IDS[n]) for p in (0, 2) for n in (1, 3)}
    assert {tuple(own(name) for name in row) for row in named} == wanted


def test_the_collection_holds_the_passages_of_the_triples(run: Run, tmp_path: Path) -> None:
    given = finished_run(str(tmp_path / "model"), ("t",)).tables()
    chunks = given.read("chunks")
    passages = dict(zip(chunks["chunk_id"].to_pylist(), view(chunks).to_pylist(), strict=True))
    triplets = [
        row
        | {
            "positive": passages[row["positive_id"]],
            "negatives": [passages[negative] for negative in row["negative_ids"]],
        }
        for row in given.read("triplets").to_pylist()
    ]
    for table in ("chunks", "queries", "qrels"):
        put(run, table, given.read(table))
    put(run, "triplets", pa.Table.from_pylist(triplets, TRIPLETS.schema))
    export(run, "msmarco", tmp_path / "out")
    collection = dict(rows(tmp_path / "out" / "collection.tsv", 2))
    assert sum(text.startswith("Guide ") for text in collection.values()) == 2
    texts = {text for row in rows(tmp_path / "out" / "triples.train.tsv", 3) for text in row[1:]}
    assert texts <= set(collection.values())


def test_mined_triplets_are_no_triples_of_the_collection(run: Run, tmp_path: Path) -> None:
    given = finished_run(str(tmp_path / "model"), ("t",)).tables()
    for table in ("chunks", "queries", "qrels"):
        put(run, table, given.read(table))
    mined = triplet_rows([("q", "doc/1", ["doc/2"])], source="click_one_hop", scored=False)
    put(run, "triplets", mined)
    names = {path.name for path in export(run, "msmarco", tmp_path / "out")}
    assert {"collection.tsv", "qrels.train.tsv", "queries.train.tsv"} <= names
    assert not [name for name in names if "triples" in name]
