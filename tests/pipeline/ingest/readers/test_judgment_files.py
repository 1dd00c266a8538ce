"""Judgments in the formats of search tools: what is read of each, and what is rejected with which line."""

import json
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.files import list_files
from darklode.pipeline.ingest.input_check import DiscardOutput
from darklode.pipeline.ingest.readers.judgment_files import read_judgments
from darklode.pipeline.ingest.rejects import Intake
from helpers.ingesting import lines, write

ROLES = ("query_id", "query", "document", "relevance", "split")

WORKBENCH = {
    "name": "imported",
    "type": "IMPORT_JUDGMENT",
    "judgmentRatings": [
        {"query": "usb hub", "ratings": [{"docId": "d1", "rating": "2.0"}, {"docId": "d2", "rating": 0}]},
        {"query": "red cable", "ratings": [{"docId": "d3", "rating": "1.0"}]},
    ],
}
RANKING_EVALUATION = {
    "requests": [
        {
            "id": "usb hub",
            "request": {"query": {"match": {"text": "usb hub"}}},
            "ratings": [{"_index": "docs", "_id": "d1", "rating": 3}, {"_index": "docs", "_id": "d2", "rating": 0}],
        }
    ],
    "metric": {"precision": {"k": 10}},
}


def judgments_of(path: Path) -> tuple[list[dict[str, object]], Intake]:
    (file,) = list_files(str(path))
    intake = Intake(DiscardOutput(), "judgments", str(path), [file])
    rows = []
    for block in read_judgments(file, intake, 10_000):
        columns = {role: block.columns[role].to_pylist() for role in ROLES if role in block.columns}
        columns["line"] = block.lines.to_pylist()
        rows += [
            {name: values[row] for name, values in columns.items() if values[row] is not None}
            for row in range(len(block))
        ]
    return rows, intake


def test_trec_qrels_of_any_ending(tmp_path: Path) -> None:
    text = "q1 0 d1 1\n\nq1\tQ0\td2\t-2\nq2 0 d1\n  q2 0 d3 3  \n"
    for name in ("qrels.txt", "dl.qrels", "qrels", "qrels.tsv"):
        rows, intake = judgments_of(write(tmp_path / name / name, text))
        assert [(row["query_id"], row["document"], row["relevance"], row["line"]) for row in rows] == [
            ("q1", "d1", "1", 1),
            ("q1", "d2", "-2", 3),
            ("q2", "d3", "3", 5),
        ]
        tally = intake.tally()
        assert (tally.rows, tally.examples) == (
            4,
            {"not four fields: query id, iteration, document id, relevance": f"{name}:4"},
        )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "test.tsv",
            "query-id\tcorpus-id\tscore\n1\td1\t1\n",
            {"query_id": "1", "document": "d1", "relevance": "1", "line": 2},
        ),
        (
            "quepid.csv",
            'query,docid,rating\n"usb, hub",42,3\n',
            {"query": "usb, hub", "document": "42", "relevance": "3", "line": 2},
        ),
        (
            "labels.jsonl",
            lines({"query_id": 7, "doc_id": "d1", "grade": 2, "split": "dev"}),
            {"query_id": "7", "document": "d1", "relevance": "2", "split": "dev", "line": 1},
        ),
    ],
)
def test_tables_with_a_header(tmp_path: Path, name: str, text: str, expected: dict[str, object]) -> None:
    assert judgments_of(write(tmp_path / name, text))[0] == [expected]


def test_judgment_lists_of_the_search_relevance_workbench(tmp_path: Path) -> None:
    expected = [("usb hub", "d1", "2.0", 1), ("usb hub", "d2", "0", 2), ("red cable", "d3", "1.0", 3)]
    response = {"hits": {"total": 1, "hits": [{"_id": "j", "_source": WORKBENCH}]}}
    for number, content in enumerate([WORKBENCH, [WORKBENCH], response]):
        rows, _ = judgments_of(write(tmp_path / str(number) / "list.json", json.dumps(content, indent=1)))
        assert [(row["query"], row["document"], row["relevance"], row["line"]) for row in rows] == expected


def test_a_ranking_evaluation_names_its_queries_by_id_or_text(tmp_path: Path) -> None:
    rows, _ = judgments_of(write(tmp_path / "rank_eval.json", json.dumps(RANKING_EVALUATION)))
    assert [(row["query_id"], row["query"], row["document"], row["relevance"]) for row in rows] == [
        ("usb hub", "usb hub", "d1", "3"),
        ("usb hub", "usb hub", "d2", "0"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "query_id,doc_id\n1,d\n", "no column for the relevance"),
        ("b.csv", "doc_id,rating\nd,1\n", "no column for the query: name one query_id"),
        ("c.txt", "how to reset a password\n", "holds no judgments: expected TREC qrels"),
        ("d.json", '{"judgmentRatings": [', "is not valid JSON"),
    ],
)
def test_other_files_are_errors_that_say_what_is_missing(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        judgments_of(write(tmp_path / name, text))
