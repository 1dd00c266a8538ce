"""Recorded judge: files of verdicts, their faults, and verdicts on chunks and documents."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import InputError, MissingColumns
from darklode.pipeline.judge.port import PAIRS, check_replies
from darklode.pipeline.judge.recorded import (
    AMBIGUOUS_DOCUMENT,
    EMPTY_VERDICT,
    NOT_RECORDED,
    RecordedJudge,
    VerdictFile,
)
from helpers.judge_tables import chunks
from helpers.runs import put

DOCUMENTS = {"a#1": "a", "a#2": "a", "b#1": "b"}
"""Document of each chunk: `a` has two, `b` one."""


def write(folder: Path, text: str, name: str = "verdicts.csv") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def reply_rows(folder: Path, file: VerdictFile, ids: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Replies to pairs of (query_id, chunk_id)."""
    run = Run(str(folder / "run"))
    put(run, "chunks", chunks("default", dict.fromkeys(DOCUMENTS, "text"), doc_id=list(DOCUMENTS.values())))
    judge = RecordedJudge(file, TenantChunks(all_tables(run), "default"))
    words = {name: ["word"] * len(ids) for name in ("query", "text", "query_hash", "chunk_hash")}
    columns = words | {"tenant": ["default"] * len(ids), "title": [None] * len(ids), "heading": [None] * len(ids)}
    columns |= {"query_id": [query for query, _ in ids], "chunk_id": [chunk for _, chunk in ids]}
    asked = pa.table(columns, schema=PAIRS)
    replies = asyncio.run(judge.judge(asked))
    check_replies(judge.judge_id, asked, replies)
    rows: list[dict[str, Any]] = replies.to_pylist()
    return rows


def test_a_pair_gets_its_recorded_grade_and_others_are_null_with_a_reason(tmp_path: Path) -> None:
    file = write(tmp_path, "query_id,chunk_id,grade\nq1,a#1,3\nq1,b#1,1\nq2,a#1,\n")
    rows = reply_rows(
        tmp_path, VerdictFile(file, relevant_from=2), [("q1", "a#1"), ("q1", "b#1"), ("q2", "a#1"), ("q2", "b#1")]
    )
    assert [(row["relevant"], row["grade"], row["error"]) for row in rows] == [
        (True, 3, None),
        (False, 1, None),
        (None, None, EMPTY_VERDICT),
        (None, None, NOT_RECORDED),
    ]


def test_a_verdict_on_a_document_holds_for_its_only_chunk_or_if_it_is_negative(tmp_path: Path) -> None:
    file = VerdictFile(write(tmp_path, "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t1\nq2\ta\t0\n", "labels.tsv"))
    rows = reply_rows(tmp_path, file, [("q1", "a#1"), ("q1", "b#1"), ("q2", "a#1"), ("q2", "a#2")])
    assert [row["relevant"] for row in rows] == [None, True, False, False]
    assert rows[0]["error"] == AMBIGUOUS_DOCUMENT


def test_a_chunk_s_own_verdict_comes_before_that_of_its_document(tmp_path: Path) -> None:
    file = VerdictFile(write(tmp_path, "query_id,doc_id,label\nq1,a,0\nq1,a#2,1\n"))
    rows = reply_rows(tmp_path, file, [("q1", "a#1"), ("q1", "a#2")])
    assert [row["relevant"] for row in rows] == [False, True]


def test_the_verdicts_of_another_run_are_read_with_their_probabilities(tmp_path: Path) -> None:
    columns = {
        "tenant": ["default", "default", "other"],
        "query_id": ["q1", "q2", "q2"],
        "chunk_id": ["a#1", "b#1", "a#1"],
        "relevant": [True, None, True],
        "probability": pa.array([0.75, None, 0.5], pa.float32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "verdicts.parquet")
    rows = reply_rows(
        tmp_path, VerdictFile(str(tmp_path / "verdicts.parquet")), [("q1", "a#1"), ("q2", "b#1"), ("q2", "a#1")]
    )
    assert [(row["relevant"], row["grade"], row["probability"]) for row in rows] == [
        (True, None, 0.75),
        (None, None, None),
        (None, None, None),
    ]
    assert rows[2]["error"] == NOT_RECORDED  # another tenant's


def test_the_judge_is_named_by_the_file_s_content_column_and_lowest_grade(tmp_path: Path) -> None:
    text = "query_id,chunk_id,first,second\nq1,a#1,1,2\n"
    one, same = write(tmp_path, text), write(tmp_path, text, "copy.csv")
    other = write(tmp_path, text + "q2,a#1,1,0\n", "other.csv")
    files = [
        VerdictFile(one, "first"),
        VerdictFile(one, "second"),
        VerdictFile(one, "first", 2),
        VerdictFile(other, "first"),
    ]
    run = Run(str(tmp_path / "run"))
    put(run, "chunks", chunks("default", {"a#1": "text"}))
    tenant = TenantChunks(all_tables(run), "default")
    ids = {RecordedJudge(file, tenant).judge_id for file in files}
    assert len(ids) == len(files)
    assert RecordedJudge(VerdictFile(same, "first"), tenant).judge_id in ids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "query_id,chunk_id,label\nq1,a,1\nq1,b,good\n",
            r"row 2 \(query q1, b\): label is no whole number; 1 of 2 rows",
        ),
        ("query_id,chunk_id,label\nq1,a,1\nq1,a,0\n", "pair occurs twice; 2 of 2 rows"),
        ("query_id,chunk_id,label\nq1,,1\n", "missing id"),
        ("query_id,chunk_id,label,probability\nq1,a,1,1.5\n", "probability is not between 0 and 1"),
        ("query_id,chunk_id,label\n", "has no verdict"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _ = VerdictFile(write(tmp_path, text)).rows


def test_a_file_s_name_is_no_pattern(tmp_path: Path) -> None:
    write(tmp_path, "query_id,chunk_id,label\nq1,a,0\n", "verdicts1.csv")
    file = write(tmp_path, "query_id,chunk_id,label\nq2,a,1\n", "verdicts[1].csv")
    assert VerdictFile(file).rows["query_id"].to_pylist() == ["q2"]


def test_a_missing_column_and_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingColumns, match="label"):
        _ = VerdictFile(write(tmp_path, "query_id,chunk_id,words\nq1,a,1\n")).rows
    with pytest.raises(InputError, match="second"):
        _ = VerdictFile(write(tmp_path, "query_id,chunk_id,label\nq1,a,1\n"), "second").rows
    with pytest.raises(InputError, match=r"ends in \.parquet"):
        _ = VerdictFile(write(tmp_path, "", "verdicts.xyz")).rows
    with pytest.raises(InputError, match="cannot be read"):
        _ = VerdictFile(str(tmp_path / "none.csv")).digest
