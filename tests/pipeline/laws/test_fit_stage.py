"""The stage: each point has its part, what is held out is not fitted, and the same points give the same bytes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run, Step, call
from darklode.pipeline.laws import fit_stage
from darklode.pipeline.laws.fit_stage import FIT_STAGE, WITHOUT_LARGEST, accepted_laws, write_law_fits
from darklode.pipeline.laws.page import law_sentences, page
from darklode.schemas.law_tables import LAW_POINTS
from helpers.planned import found_of
from helpers.runs import put, read


def run_of(folder: Path) -> Run:
    """A planted law that begins at chance, two seeds."""
    draws, rows = np.random.default_rng(0), []
    for size in 2 ** np.arange(4, 12):
        for seed in range(2):
            value = min((2000 / size) ** 0.5 + 1, 5.5) * np.exp(draws.normal(0, 0.001))
            rows.append({"measure": "contrastive_entropy", "source": "a|b", "size": int(size), "seed": seed})
            rows[-1] |= {"value": value}
    run = Run(str(folder))
    put(run, "law_points", pa.Table.from_pylist(rows, schema=LAW_POINTS.schema))
    step = Step(FIT_STAGE, call(write_law_fits, seed=0))
    run.execute(step.plan(run), step.execute)
    return run


@pytest.mark.slow
def test_each_place_has_its_part_and_what_is_held_out_is_not_fitted(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a")
    (verdict,) = read(run, "law_verdicts")
    assert (verdict["verdict"], verdict["points"], verdict["held_out"]) == ("law", 16, 2)
    assert verdict["near_chance"] >= 4
    mine = [row for row in read(run, "law_predictions") if row["fitted_to"] == WITHOUT_LARGEST]
    assert [row["size"] for row in mine if row["part"] == "held out"] == [2048]
    assert 2 * sum(row["part"] == "near to chance" for row in mine) == verdict["near_chance"]
    fits = [row for row in read(run, "law_fits") if row["fitted_to"] == WITHOUT_LARGEST]
    assert {row["points"] for row in fits} == {16 - 2 - verdict["near_chance"]}
    beyond = [row for row in read(run, "law_predictions") if row["part"] == "not measured"]
    assert [(row["size"], row["loss"]) for row in beyond] == [(4096, None), (8192, None)]
    assert all(row["low"] < row["predicted"] < row["high"] for row in beyond)
    constants = [row for row in read(run, "law_constants") if row["form"] == verdict["form"]]
    for of in {row["fitted_to"] for row in constants}:
        mine = [row for row in constants if row["fitted_to"] == of]
        spread = np.array([row["covariance"] for row in mine], np.float64)
        np.testing.assert_allclose(np.sqrt(np.diag(spread)), [row["standard_error"] for row in mine])  # type: ignore[arg-type]
    (sentence,) = law_sentences(run.tables("law_verdicts"))
    assert sentence.startswith("contrastive_entropy, a|b: law.")
    assert "a\\|b" in page(run).decode()
    again = run_of(tmp_path / "b")
    names = ("law_fits", "law_constants", "law_predictions", "law_verdicts")
    assert [run.tables(name).content(name) for name in names] == [again.tables(name).content(name) for name in names]


@pytest.mark.slow
def test_two_encoders_without_parameters_are_not_fitted_as_one(tmp_path: Path) -> None:
    """Each has a law of its own; together they were a cloud of two curves, and a verdict about neither."""
    rows = []
    for size in 2 ** np.arange(4, 12):
        for seed in range(2):
            for encoder, factor in (("a", 1.0), ("b", 2.0)):
                value = factor * ((2000 / size) ** 0.5 + 1) * (1 + 0.001 * seed)
                rows.append({"measure": "loss", "source": "labels", "size": int(size), "seed": seed, "value": value})
                rows[-1] |= {"encoder": encoder}
    run = Run(str(tmp_path))
    put(run, "law_points", pa.Table.from_pylist(rows, schema=LAW_POINTS.schema))
    step = Step(FIT_STAGE, call(write_law_fits, seed=0))
    run.execute(step.plan(run), step.execute)
    verdicts = read(run, "law_verdicts")
    assert [(row["encoder"], row["verdict"], row["points"]) for row in verdicts] == [("a", "law", 16), ("b", "law", 16)]
    names = ("law_fits", "law_constants", "law_predictions")
    assert [{row["encoder"] for row in read(run, name)} for name in names] == [{"a", "b"}] * 3
    mine = {row["encoder"]: row["loss"] for row in read(run, "law_predictions") if row["size"] == 16}
    assert mine["b"] == pytest.approx(2 * mine["a"])
    sentences = law_sentences(run.tables("law_verdicts"))
    assert [one.partition(":")[0] for one in sentences] == ["loss, labels, a", "loss, labels, b"]
    assert set(accepted_laws(run.tables("law_points", "law_verdicts"))) == {
        ("loss", "labels", "a"), ("loss", "labels", "b")
    }  # fmt: skip


@pytest.mark.slow
def test_what_stands_is_not_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "a")
    (judged,) = found_of(run.tables("law_points").read("law_points")).values()
    monkeypatch.delattr(fit_stage, "find_law")
    (found,) = accepted_laws(run.tables("law_points", "law_verdicts")).values()
    assert (found.verdict, found.reason) == (judged.verdict, judged.reason)
    assert (found.plateau == judged.plateau).all()
    assert found.full_fit is not None
    assert judged.full_fit is not None
    assert found.full_fit.form is judged.full_fit.form
    assert (found.full_fit.at == judged.full_fit.at).all(), "to the last digit"
