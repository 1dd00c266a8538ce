"""A distilled tower on the page: what it keeps, how near it is, its curves, its speed."""

from typing import Any

import pyarrow as pa
import pytest

from darklode.flows.runs import write_inputs
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.report.drawing import Curves
from darklode.pipeline.towers.evaluation import TOWER_TEST_STAGE
from darklode.schemas.run_inputs import TowersInputs
from darklode.schemas.tables import TABLES
from helpers.report_runs import figure, figures, parsed, rendered, rows_of, shown, text_of
from helpers.runs import execute, put


@pytest.fixture
def student(run: Run) -> Run:
    """What `train-towers` leaves, made by hand: two trials, the second of which is the nearer."""
    log = [
        {"trial": trial, "step": step, "squared": None if not step else 0.4 - 0.1 * trial, "cosine": None}
        | {"distance": 0.8 - step / 100 * (1 + trial)}
        for trial in (0, 1)
        for step in (0, 10, 20)
    ]
    trials = [
        {"trial": n, "learning_rate": rate, "step": 20, "distance": 0.6 - 0.2 * n} for n, rate in enumerate((0.1, 0.2))
    ]
    told = {"queries": 30, "distance": 0.25, "distance_p95": 0.4, "overlap": 0.75, "top_100": 0.9}
    health = [{"split": split} | told for split in ("unseen", "test")]
    splits = ["train"] * 5 + ["validation"] * 2 + ["unseen"]
    queries = [
        {"tenant": "t", "query": f"q{n}", "index": int(split == "unseen"), "source": "queries", "split": split}
        for n, split in enumerate(splits)
    ]
    labelled = [
        {"tenant": "t", "query_id": f"q{n}", "index": n % 2, "text": f"how {n}", "group": str(n), "split": "test"}
        | {"shares_positive": False}
        for n in range(4)
    ]
    of_queries = [
        {"tenant": "t", "system": name, "query_id": f"q{n}", "measure": "R@100", "value": value if n % 2 else 1.0}
        for name, value in (("teacher", 0.5), ("student", 0.4))
        for n in range(4)
    ]
    reached = [
        {"system": name, "measure": "R@100", "value": value, "ceiling": 1.0, "part": "counted", "queries": 40}
        for name, value in (("teacher", 0.8), ("student", 0.6))
    ]
    pairs = [{"system": "student", "other": "teacher", "measure": "R@100", "part": "counted", "difference": -0.2}]
    pairs[0] |= {"p": 0.5, "p_holm": 0.5, "queries": 40, "clusters": 40}
    rows: dict[str, list[dict[str, Any]]] = {"tower_queries": queries, "distillation_log": log, "evaluation": reached}
    rows |= {"distillation_trials": trials, "evaluation_pairs": pairs}
    rows |= {"adaptation_queries": labelled, "evaluation_queries": of_queries}
    for name, listed in rows.items():
        put(run, name, pa.Table.from_pylist(listed, schema=TABLES[name].schema))

    def tested(_tables: Tables, output: Output) -> None:
        output.write("tower_health", pa.Table.from_pylist(health, schema=TABLES["tower_health"].schema))
        output.facts |= {"teacher": {"numbers": 22}, "student": {"numbers": 11}}

    execute(run, Stage(TOWER_TEST_STAGE.name, 1, (), ("tower_health",)), tested)
    write_inputs(run, TowersInputs(runs=["runs/first"], encoder="tiny"))
    return run


def test_the_page_tells_what_a_student_keeps_and_how_near_it_is(student: Run) -> None:
    root = parsed(rendered(student))
    assert "Query encoder distilled from tiny" in text_of(root)
    assert [key for key in figures(root) if key.startswith(("tower-", "adapter-"))] == [
        "tower-kept",
        "tower-health",
        "tower-course",
        "tower-speeds",
    ]
    every, held_out = rows_of(root, "tower-kept")
    assert (every["test queries"], every["measure"], every["kept"]) == ("all", "R@100", "0.75")
    assert (held_out["test queries"], held_out["kept"], held_out["queries"]) == ("held-out run", "0.8", "2")
    assert [row["split"] for row in rows_of(root, "tower-health")] == ["test", "unseen"]
    assert [(row["tower"], row["numbers"]) for row in rows_of(root, "tower-speeds")] == [
        ("teacher", "22"),
        ("student", "11"),
    ]
    assert "Training queries 5 Held-out queries 2 Unseen queries 1 Trials 2" in text_of(root)


def test_its_course_is_drawn_trial_by_trial(student: Run) -> None:
    squared, distance = shown(student)["tower-course"].drawings
    assert isinstance(squared, Curves)
    assert isinstance(distance, Curves)
    assert [len(one.points) for one in squared.curves] == [2, 2], "before the first step no loss is known"
    assert [[point.is_chosen for point in one.points] for one in distance.curves] == [[False, False, True]] * 2


def test_without_the_test_there_are_its_curves(student: Run) -> None:
    student.store.delete(f"manifests/{TOWER_TEST_STAGE.name}.json")
    root = parsed(rendered(student))
    assert [key for key in figures(root) if key.startswith("tower-")] == ["tower-course"]
    assert "held-out" in text_of(figure(root, "tower-course"))
