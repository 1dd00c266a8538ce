"""The stages of a validation by the settings, and what is decided of a run."""

import pyarrow as pa
import pytest

from darklode.flows.config import load_settings
from darklode.flows.jobs.validate_benchmark import decide, draw_sample, steps
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.errors import ArtifactError, NotPublishable
from darklode.schemas.review_tables import RELEASE, VALIDATION
from darklode.schemas.settings import Settings
from helpers.reviewed_run import pairs, put_run
from helpers.runs import put, read

PANEL = "judge.panel=[{kind: embedded}]"


def settings(*assignments: str) -> Settings:
    return load_settings(assignments=list(assignments))


def step(run: Run, name: str, *assignments: str) -> Step:
    return next(one for one in steps(run, settings(*assignments)) if one.stage.name == name)


@pytest.mark.parametrize(
    ("assignments", "threshold"),
    [
        ((), Settings().judge.threshold),
        (("judge.threshold=0.3",), 0.3),
        (("judge.threshold=fitted", "judge.human_labels=l.csv"), "fitted"),
        ((PANEL,), None),
        ((PANEL, "judge.vote=mean"), Settings().judge.threshold),
    ],
    ids=["default", "set", "fitted", "majority", "mean"],
)
def test_the_judges_threshold_is_part_of_the_validation_where_it_decides(
    run: Run, assignments: tuple[str, ...], threshold: object
) -> None:
    assert step(run, "validate", *assignments).plan(run).settings["threshold"] == threshold


def test_tables_that_only_some_judges_write_are_read_only_then(run: Run) -> None:
    for name in ("review_sample", "corrected_audit", "corrected_evaluation"):
        assert "unjudged" not in step(run, name).stage.reads
        assert "unjudged" in step(run, name, "judge.strategy=adaptive").stage.reads
    assert "calibration" not in step(run, "validate").stage.reads
    assert "calibration" in step(run, "validate", "judge.threshold=fitted", "judge.human_labels=l.csv").stage.reads


def test_a_sample_is_drawn_once_for_the_same_settings(run: Run) -> None:
    put_run(run, pairs({"a": 10}))
    draw_sample(run, settings("review.max_pairs=20"))
    first = read(run, "review_sample")
    manifest = run.manifests()["review_sample"]
    draw_sample(run, settings("review.max_pairs=20", "review.show_judge=true"))
    assert run.manifests()["review_sample"] == manifest
    draw_sample(run, settings("review.max_pairs=10"))
    assert (len(first), len(read(run, "review_sample"))) == (20, 10)


def test_a_run_without_verdicts_has_no_sample(run: Run) -> None:
    with pytest.raises(ArtifactError, match="verdicts"):
        draw_sample(run, settings())


Row = tuple[str, float | None, float | None, bool | None]
"""A figure, its value, what was asked of it, and whether it passed."""


def released(run: Run, *rows: Row, labelled: int = 5, outside: int = 0) -> Run:
    figures = [dict(zip(("figure", "value", "asked", "passed"), row, strict=True)) for row in rows]
    put(run, "release", pa.Table.from_pylist(figures, RELEASE.schema))
    counts = {field.name: 0 for field in VALIDATION.schema if not field.nullable}
    found = counts | {"labelled": labelled, "outside": outside}
    put(run, "validation", pa.Table.from_pylist([found], VALIDATION.schema))
    return run


ASKED = ("kappa", 0.71, 0.7, True)
NOT_ASKED = ("recall", 0.8, None, None)


def test_what_was_reached_is_published_with_its_figures(run: Run) -> None:
    assert decide(released(run, ASKED, NOT_ASKED)) == (
        f"{run.store.url} may be published: kappa is 0.710 (0.7); limits in parentheses."
    )


def test_what_was_missed_holds_the_run_back(run: Run) -> None:
    with pytest.raises(NotPublishable, match=r"recall is 0\.800, but validation\.min_recall requires at least 0\.9"):
        decide(released(run, ASKED, ("recall", 0.8, 0.9, False)))


def test_where_nothing_was_asked_it_is_said_unless_nobody_labelled_anything(run: Run) -> None:
    assert decide(released(run, NOT_ASKED)).startswith("No release limit is set; use --min-kappa")
    other = Run(f"{run.store.url}-2")
    with pytest.raises(ArtifactError, match=r"has a human label \(7 labels are for pairs outside the sample\)"):
        decide(released(other, NOT_ASKED, labelled=0, outside=7))
