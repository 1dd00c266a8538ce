"""Grades in the card: their distribution, and a warning if only people give them."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report.caveats import caveats
from darklode.pipeline.report.grades import label_grades
from darklode.schemas.label_tables import QRELS
from darklode.schemas.settings import Settings
from helpers.judge_tables import queries
from helpers.runs import put


def labelled(run: Run, *labels: tuple[int, str]) -> Run:
    put(run, "queries", queries("t", {"q": "a query"}))
    rows = [
        {"tenant": "t", "query_id": "q", "chunk_id": f"c{place}", "relevance": relevance, "source": source}
        for place, (relevance, source) in enumerate(labels)
    ]
    put(run, "qrels", pa.Table.from_pylist(rows, schema=QRELS.schema))
    return run


def test_labels_are_counted_by_grade_and_source(run: Run) -> None:
    labelled(run, (3, "judge"), (3, "human"), (2, "judge"), (0, "judge"))
    counts = [(row["grade"], row["labels"], row["by_people"]) for row in label_grades(all_tables(run)).to_pylist()]
    assert counts == [(3, 2, 1), (2, 1, 0), (0, 1, 0)]


def test_binary_labels_have_no_table_of_grades(run: Run) -> None:
    assert label_grades(all_tables(labelled(run, (1, "judge"), (0, "judge")))).num_rows == 0


@pytest.mark.parametrize(
    ("labels", "is_mixed"),
    [
        ([(1, "judge"), (3, "human")], True),
        ([(2, "judge"), (3, "human")], False),
        ([(1, "judge"), (1, "human")], False),
        ([(0, "judge"), (3, "human")], False),
        ([(1, "judge")], False),
    ],
)
def test_human_grades_among_binary_labels_of_the_judge_are_a_caveat(
    run: Run, labels: list[tuple[int, str]], is_mixed: bool
) -> None:
    found = [text for text in caveats(all_tables(labelled(run, *labels)), Settings()) if "labels.binary" in text]
    assert bool(found) is is_mixed
