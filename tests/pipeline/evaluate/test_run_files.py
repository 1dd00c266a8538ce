"""TREC runs from elsewhere: what is taken, in which order, and what is turned away."""

import gzip
from pathlib import Path

import ir_measures
import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.run_files import RunFile
from helpers.evaluated import build_of, ranked
from helpers.runs import Run, put, read


def of_file(run: Run, file: Path, *lines: str) -> list[tuple[object, ...]]:
    text = "".join(f"{line}\n" for line in lines)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    ranked(run, {}, file)
    return [(row["tenant"], row["query_id"], row["rank"], row["text_id"]) for row in read(run, "test_rankings")]


def test_names_may_be_written_as_exports_write_them(tmp_path: Path) -> None:
    found = of_file(
        build_of(tmp_path / "run"),
        tmp_path / "theirs.txt.gz",
        "b%2Firch/test%20login Q0 b%2Firch/login%231 1 2.5 x",
        "acme/test%20login  Q0\tlogin#1 9 1e-1 x",
        "acme/test%20login Q0 acme/export%231 1 -.5 x",
    )
    assert found == [
        ("acme", "test login", 1, "login#1"),
        ("acme", "test login", 2, "export#1"),
        ("b/irch", "test login", 1, "login#1"),
    ]
    assert RunFile("a/theirs.txt.gz").name == "theirs"


def test_a_document_counts_for_its_best_chunk(tmp_path: Path) -> None:
    run = build_of(tmp_path / "run")
    chunks = run.tables("chunks").read("chunks")
    second = pa.Table.from_pylist(
        [
            chunks.slice(0, 1).to_pylist()[0]
            | {"doc_id": "login", "title": "login", "chunk_id": "login#2", "text": "login", "content_hash": "2"}
        ],
        schema=chunks.schema,
    )
    put(run, "chunks", pa.concat_tables([chunks, second]))
    found = of_file(
        run,
        tmp_path / "theirs.txt",
        "acme/test%20login Q0 export 1 4 x",
        "acme/test%20login Q0 acme/login 2 3 x",
        "acme/test%20login Q0 outside 3 2 x",
        "acme/test%20login Q0 login#2 4 1 x",
    )
    assert [text for *_, text in found] == ["export#1", "login#2", "outside"]
    assert [(row["line"], row["reason"]) for row in read(run, "rejects")] == [(4, "document repeated")]


def test_a_file_without_any_text_of_the_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of the 2 texts .* is a chunk or document of the run, such as 'one'"):
        of_file(
            build_of(tmp_path / "run"),
            tmp_path / "theirs.txt",
            "acme/test%20login Q0 one 1 2 x",
            "acme/test%20login Q0 two 2 1 x",
        )


def test_lists_are_ordered_as_trec_eval_orders_them(tmp_path: Path) -> None:
    lines = [
        "acme/test%20login Q0 export#1 1 3 x",
        "acme/test%20login Q0 login#1 2 7 x",
        "acme/test%20login Q0 outside 3 7.5 x",
        "acme/test%20login Q0 refund#1 4 3 x",
    ]
    run = build_of(tmp_path / "run")
    found = of_file(run, tmp_path / "theirs.run", *lines)
    assert [text for *_, text in found] == ["outside", "login#1", "refund#1", "export#1"]
    mine = run.tables("test_labels", "test_rankings")
    labels = mine.sql("SELECT * FROM test_labels WHERE tenant = 'acme' AND query_id = 'test login' ORDER BY text_id")
    names = ["RR@10", "nDCG@10", "R@1"]
    qrels = [ir_measures.Qrel("q", row["text_id"], row["relevance"]) for row in labels.to_pylist()]
    theirs = [ir_measures.ScoredDoc("q", line.split()[2], float(line.split()[4])) for line in lines]
    wanted = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in names], qrels, theirs)
    values = compute_measures([mine.read("test_rankings")], labels, ["test login"], names)
    assert values[0].tolist() == pytest.approx([wanted[ir_measures.parse_measure(name)] for name in names])


def test_bad_rows_are_rejects_with_their_line(tmp_path: Path) -> None:
    run = build_of(tmp_path / "run")
    of_file(
        run,
        tmp_path / "theirs.txt",
        "acme/test%20login Q0 login#1 1 3 x",
        "",
        "acme/test%20login Q0 login#1 2 2 x",
        "acme/test%20login Q0 export#1 1 high x",
        "test%20login Q0 export#1 1 2 x",
        "acme/train%20password Q0 export#1 1 2 x",
        "four fields of text",
    )
    rows = [(row["line"], row["reason"], row["file"]) for row in read(run, "rejects")]
    assert rows == [
        (2, "not 6 fields", "theirs.txt"),
        (3, "document repeated", "theirs.txt"),
        (4, "score is not a number", "theirs.txt"),
        (5, "query of several tenants: write tenant/query_id", "theirs.txt"),
        (6, "not a test query", "theirs.txt"),
        (7, "not 6 fields", "theirs.txt"),
    ]
    step = next(one for one in run.manifests()["test_rankings"].funnel if "theirs" in one.step)
    assert (step.rows_in, step.rows_out, sum(step.dropped.values())) == (7, 1, 6)


@pytest.mark.parametrize(("lines", "reason"), [([], "it is empty"), (["who Q0 knows 1 2 x"], "not a test query: 1")])
def test_a_file_that_ranks_nothing_is_an_error(tmp_path: Path, lines: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=rf"has no ranking of a test query \({reason}\)"):
        of_file(build_of(tmp_path / "run"), tmp_path / "theirs.txt", *lines)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        ranked(build_of(tmp_path / "run"), {}, tmp_path / "none.txt")
