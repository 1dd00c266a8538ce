"""The release gate."""

from __future__ import annotations

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError, NotPublishable
from darklode.pipeline.judge.probe.kinds import PROBE_KINDS
from darklode.pipeline.judge.probe.rates import probe_rates
from darklode.pipeline.validate.gate import GATE_STAGE, gate, release, release_outcome, require_release
from darklode.schemas.review_tables import VALIDATION
from darklode.schemas.settings import ValidationSettings
from helpers.runs import execute, put, read


def decided(run: Run, found: dict[str, float | None], **asked: float) -> list[dict[str, object]]:
    rows = []
    for tenant in (None, "a"):
        row = {field.name: 0 for field in VALIDATION.schema if not field.nullable}
        rows.append(row | {"tenant": tenant, **(found if tenant is None else dict.fromkeys(found, 0.5))})
    put(run, "validation", pa.Table.from_pylist(rows, schema=VALIDATION.schema))
    settings = ValidationSettings.model_validate(asked)
    execute(run, GATE_STAGE, lambda tables, output: gate(tables, output, settings))
    return release(run.tables("release"))


FOUND = {"kappa": 0.71, "null_rate": 0.02, "recall": 0.8}


def test_nothing_asked_nothing_decided(run: Run) -> None:
    rows = decided(run, FOUND)
    assert {row["figure"]: (row["value"], row["asked"], row["passed"]) for row in rows} == {
        name: (value, None, None) for name, value in (FOUND | {"probe_rate": None}).items()
    }
    assert release_outcome(rows) == "not asked"
    require_release(rows, "RUN")


def test_what_is_reached_passes_and_the_bound_itself_is_reached(run: Run) -> None:
    rows = decided(run, FOUND, min_kappa=0.71, max_null_rate=0.02, min_recall=0.8)
    assert {row["figure"]: row["passed"] for row in rows} == dict.fromkeys(FOUND, True) | {"probe_rate": None}
    assert release_outcome(rows) == "published"
    require_release(rows, "RUN")


def test_each_figure_that_is_missed_is_named_with_what_was_asked(run: Run) -> None:
    rows = decided(run, FOUND | {"recall": None}, min_kappa=0.72, max_null_rate=0.01, min_recall=0.1)
    assert release_outcome(rows) == "held back"
    with pytest.raises(NotPublishable) as caught:
        require_release(rows, "runs/first")
    message = str(caught.value)
    assert message.startswith(
        "runs/first cannot be published: kappa is 0.710, but validation.min_kappa requires at least 0.72; "
    )
    assert "null_rate is 0.020, but validation.max_null_rate requires at most 0.01" in message
    assert "recall is unknown (too few labels), but validation.min_recall requires at least 0.1" in message
    assert (NotPublishable.code, DarklodeError.code) == (3, 1)


def test_one_that_is_reached_does_not_make_up_for_another(run: Run) -> None:
    rows = decided(run, FOUND, min_kappa=0.1, min_recall=0.9)
    assert [row["passed"] for row in rows if row["figure"] != "probe_rate"] == [True, None, False]
    with pytest.raises(NotPublishable, match=r"recall is 0\.8") as caught:
        require_release(rows, "RUN")
    assert "kappa" not in str(caught.value)


def test_a_run_without_validation_is_unknown(run: Run) -> None:
    put(run, "validation", VALIDATION.empty())
    execute(run, GATE_STAGE, lambda tables, output: gate(tables, output, ValidationSettings(min_kappa=0.0)))
    assert {row["figure"]: row["passed"] for row in read(run, "release")} == {
        "kappa": False,
        "null_rate": None,
        "recall": None,
        "probe_rate": None,
    }


def probed(run: Run, **outcomes: list[str]) -> None:
    """Rates of probes; kinds that are not named have none."""
    given = {kind.replace("_", " "): found for kind, found in outcomes.items()}
    skipped = {kind: "none drawn" for kind in PROBE_KINDS if kind not in given}
    put(run, "judge_probe", probe_rates(given, {}, skipped, {}))


def probe_row(run: Run) -> dict[str, object]:
    put(run, "validation", VALIDATION.empty())
    stage = GATE_STAGE.reading("judge_probe")
    execute(run, stage, lambda tables, output: gate(tables, output, ValidationSettings(max_probe_rate=0.25)))
    return next(row for row in read(run, "release") if row["figure"] == "probe_rate")


def test_the_worst_kind_of_probe_decides(run: Run) -> None:
    probed(run, repeated=["as expected"] * 12, empty_chunk=["wrong"] * 4 + ["as expected"] * 8)
    row = probe_row(run)
    assert (row["value"], row["passed"]) == (pytest.approx(1 / 3), False)


def test_too_few_probes_of_a_kind_do_not_count(run: Run) -> None:
    probed(run, repeated=["wrong"] * 3 + ["as expected"] * 9, empty_chunk=["wrong"] * 9)
    assert (probe_row(run)["value"], probe_row(run)["passed"]) == (0.25, True)
    probed(run, empty_chunk=["wrong"] * 9)
    assert (probe_row(run)["value"], probe_row(run)["passed"]) == (None, False)


def test_a_rate_that_probing_left_unknown_does_not_pass(run: Run) -> None:
    kinds = [*PROBE_KINDS]
    outcomes = dict.fromkeys(kinds, ["as expected"] * 12)
    put(run, "judge_probe", probe_rates(outcomes, {}, {}, {}))
    assert (probe_row(run)["value"], probe_row(run)["passed"]) == (0.0, True)
    put(run, "judge_probe", probe_rates(outcomes, {kinds[-1]: 1}, {}, {}))
    assert (probe_row(run)["value"], probe_row(run)["passed"]) == (None, False)
    put(run, "judge_probe", probe_rates(outcomes | {kinds[3]: []}, {kinds[3]: 12}, {}, {}))
    assert (probe_row(run)["value"], probe_row(run)["passed"]) == (None, False)


def test_a_kind_whose_replies_are_unreadable_does_not_pass(run: Run) -> None:
    probed(run, repeated=["as expected"] * 12, empty_chunk=["unreadable"] * 5 + ["as expected"] * 5)
    assert (probe_row(run)["value"], probe_row(run)["passed"]) == (None, False)
