"""What goes before any retriever is asked, by which filter, and what is left of it."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.generate.filters import FILTER_STAGE, copied_share, filter_generated
from darklode.schemas.settings import CleanSettings
from darklode.schemas.tables import TABLES
from helpers.runs import documents, execute, put, read

TEXT = "the certificate is renewed by the portal every night unless a firewall blocks port 80 of the host"
REAL = {
    "reset my second factor": "train",
    "certificate was never made here": "train",
    "export customers as a list": "test",
}


def sieved(folder: Path, queries: Mapping[str, str | None], *, copies: bool = False, alone: bool | None = None) -> Run:
    run = Run(str(folder))
    chunk = {
        "tenant": "t", "chunk_id": "c", "doc_id": "d", "position": 0, "start": 0, "end": 9, "text": TEXT, "title": None,
        "heading": None, "content_hash": "0" * 32,
    }  # fmt: skip
    put(run, "chunks", pa.Table.from_pylist([chunk], schema=TABLES["chunks"].schema))
    real = [
        {"tenant": "t", "query_id": text, "text": text, "group": text, "split": split} for text, split in REAL.items()
    ]
    put(run, "real_queries", pa.Table.from_pylist(real, schema=TABLES["real_queries"].schema))
    written = [
        {"tenant": "t", "query_id": one, "chunk_id": "c", "text": text, "self_contained": alone,
         "error": None if text else "the reply is not JSON"}
        for one, text in queries.items()
    ]  # fmt: skip
    put(run, "written_queries", pa.Table.from_pylist(written, schema=TABLES["written_queries"].schema))
    put(run, "documents", documents(doc_id=["d"], text=[TEXT]))
    execute(
        run,
        FILTER_STAGE,
        lambda tables, output: filter_generated(
            tables, output, CleanSettings(language="en"), run.tables(), copies=copies
        ),
    )
    return run


def reasons(run: Run) -> dict[object, object]:
    return {row["query_id"]: row["reason"] for row in read(run, "filtered_queries")}


CASES = {
    None: "unreadable",
    "  ": "unreadable",
    "certificate": "shorter than real queries",
    "why does nobody ever renew my certificate": "longer than real queries",
    "warum wird mein Zertifikat nicht": "another language",
    "renewed by the portal": "copied from its text",
    "call 555 123 4567 about": "personal data",
    "the list of customers exported": "near-duplicate of a held-out query",
    "certificates behind a firewall": None,
}


@pytest.mark.parametrize(("query", "reason"), CASES.items())
def test_each_filter_names_what_it_takes(tmp_path: Path, query: str | None, reason: str | None) -> None:
    run = sieved(tmp_path, {"g": query})
    assert reasons(run) == {"g": reason}
    assert [row["split"] for row in read(run, "queries")] == ([] if reason else ["train"])
    rejects = read(run, "rejects") if reason else []
    assert [row["reason"] for row in rejects] == [reason] * len(rejects)
    assert len(rejects) == bool(reason)


def test_of_near_ones_the_first_stays(tmp_path: Path) -> None:
    run = sieved(tmp_path, {"a": "certificates behind a firewall", "b": "the firewall behind certificates"})
    assert reasons(run) == {"a": None, "b": "near-duplicate of another generated query"}


def test_what_goes_takes_no_other_along(tmp_path: Path) -> None:
    long = "are the certificates behind the firewall"
    run = sieved(tmp_path, {"a": long, "b": "certificates behind a firewall", "c": "the firewall behind certificates"})
    assert reasons(run) == {
        "a": "longer than real queries",
        "b": None,
        "c": "near-duplicate of another generated query",
    }


def test_a_writer_of_copies_may_copy(tmp_path: Path) -> None:
    assert reasons(sieved(tmp_path, {"a": "renewed by the portal"}, copies=True)) == {"a": None}


@pytest.mark.parametrize(("alone", "reason"), [(False, "not self-contained"), (True, None), (None, None)])
def test_what_cannot_be_understood_alone_goes(tmp_path: Path, alone: bool | None, reason: str | None) -> None:
    assert reasons(sieved(tmp_path, {"a": "certificates behind a firewall"}, alone=alone)) == {"a": reason}


def test_what_is_left_is_a_build_s_queries(tmp_path: Path) -> None:
    (row,) = read(sieved(tmp_path, {"a": "certificates behind a firewall"}), "queries")
    assert (row["text"], row["n_words"], row["language"], row["n_represented"]) == (
        "certificates behind a firewall", 4, "en", 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("query", "text", "share"),
    [("a b c d", "x a b c y", 0.75), ("A B", "a b", 1.0), ("a b", "b a", 0.5), ("a", "", 0.0), ("", "a", 0.0)],
)
def test_the_copied_share_is_of_words_in_a_row(query: str, text: str, share: float) -> None:
    assert copied_share(query, text) == share
