"""A file of human labels: every row becomes a label or a reject."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.judge.calibration import CALIBRATE, calibrate
from darklode.pipeline.judge.human_labels import STEP_NAME, sampling_weights
from darklode.schemas.judging import JudgeSettings
from helpers.calibrating import HEAD, calibrated, given_run
from helpers.runs import execute, read
from helpers.scripted_judge import ScriptedJudge


def test_every_row_is_a_label_or_a_reject_with_file_line_and_reason(run: Run, tmp_path: Path) -> None:
    lines = [
        "\ufeff" + HEAD,
        "a,q00,c0,1",
        "a,q00,c1,maybe",
        "a,q00,c1,-1",
        "a,q99,c1,1",
        "a,q00,c9,1",
        "b,q00,c0,1",
        "",
        "a,q19,c7,1",
        "a,q00",
        'a,q00,"c\n2",1',
        "a,,c1,1",
        "a,q00,c0,1",
        "a,q01,c1,1",
        "a,q01,c1,0",
        ",q02,c2, 3.0",
        "a,q02,c3,0.5",
    ]
    manifest, _ = calibrated(given_run(run), tmp_path / "l.csv", lines)
    assert [(row["query_id"], row["chunk_id"], row["relevance"]) for row in read(run, "human_labels")] == [
        ("q00", "c0", 1),
        ("q02", "c2", 3),
    ]
    rejects = read(run, "rejects")
    assert [(row["line"], row["reason"]) for row in rejects] == [
        (3, "relevance is not a whole number from 0"),
        (4, "relevance is not a whole number from 0"),
        (5, "unknown query_id"),
        (6, "unknown chunk_id"),
        (7, "unknown query_id"),
        (9, "pair is not in the pool"),
        (10, "wrong number of fields"),
        (11, "unknown chunk_id"),
        (13, "missing id"),
        (14, "label repeated"),
        (15, "contradictory labels"),
        (16, "contradictory labels"),
        (18, "relevance is not a whole number from 0"),
    ]
    assert {(row["file"], row["stage"], row["table"]) for row in rejects} == {("l.csv", STEP_NAME, "human_labels")}
    assert rejects[0]["payload"] == "a,q00,c1,maybe"
    (step,) = manifest.funnel
    assert (step.rows_in, step.rows_out, sum(step.dropped.values())) == (15, 2, 13)


def test_weights_are_kept_and_invalid_ones_are_rejects(run: Run, tmp_path: Path) -> None:
    given = ["12.5", "", "0", "-1", "many", "inf", "nan"]
    lines = [f"{HEAD},weight", *(f"a,q00,c{number},1,{weight}" for number, weight in enumerate(given))]
    calibrated(given_run(run), tmp_path / "l.csv", lines)
    assert [row["weight"] for row in read(run, "human_labels")] == [12.5, None]
    rejects = [(row["line"], row["reason"]) for row in read(run, "rejects")]
    assert rejects == [(line, "weight is not a number above 0") for line in range(4, 9)]


def test_sampling_weights_add_up_to_the_effective_number_of_labels() -> None:
    def weights(*values: float | None) -> list[float] | None:
        found = sampling_weights(pa.table({"weight": pa.array(values, pa.float64())}))
        return None if found is None else found.tolist()

    assert weights(None, None) is None, "unknown weights"
    assert weights(7.0, 7.0) == [1.0, 1.0]
    assert weights(3.0, None) == pytest.approx([1.2, 0.4]), "a label without a weight stands for itself"


@pytest.mark.parametrize(
    ("given", "stored"),
    [(["0", "1", "2", "3"], [0, 0, 2, 3]), (["0", "1", "1", "0"], [0, 1, 1, 0])],
    ids=["grades", "binary labels"],
)
def test_in_a_graded_file_the_judges_first_relevant_grade_is_peoples_too(
    run: Run, tmp_path: Path, given: list[str], stored: list[int]
) -> None:
    """UMBRELA's grade 1 is "related": not relevant to the judge, so not relevant to people on the same scale."""
    lines = [HEAD, *(f"a,q00,c{number},{grade}" for number, grade in enumerate(given))]
    manifest, _ = calibrated(given_run(run), tmp_path / "l.csv", lines, settings_class=FromTwo)
    assert [row["relevance"] for row in read(run, "human_labels")] == stored
    assert manifest.facts.get("grades_below_relevant", 0) == (1 if "2" in given else 0)


class FromTwo(JudgeSettings):
    """A judge with the grades 2 and 3 of relevant pairs."""

    def grades(self) -> dict[int, str]:
        return {3: "perfect", 2: "good"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"has no column query_id, chunk_id, relevance; it has none"),
        ("query_id,chunk,relevance\n", r"has no column chunk_id; it has query_id, chunk, relevance"),
        ("query_id,chunk_id,relevance\n", r"labels no pair of the pool \(it is empty\)"),
        ("query_id,chunk_id,relevance\nx,y,1\n", r"labels no pair of the pool \(unknown query_id: 1\)"),
    ],
)
def test_a_file_without_a_usable_label_stops_the_build(run: Run, tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        calibrated(given_run(run), tmp_path / "l.csv", [text.rstrip("\n")] if text else [])


def test_a_file_that_is_no_utf8_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "l.csv"
    file.write_bytes("query_id,chunk_id,relevance\nqü,c0,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"l.csv cannot be read: .*CSV file in UTF-8"):
        execute(
            given_run(run),
            CALIBRATE,
            lambda tables, output: calibrate(
                tables,
                output,
                JudgeSettings(human_labels=str(file)),
                judge_for=lambda _: ScriptedJudge(),
                tenant="a",
                seed=1,
            ),
        )
