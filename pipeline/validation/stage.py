"""The stage that holds the judge of a run against the people who reviewed a sample of it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.validation.disagreements import disagreements
from pipeline.validation.figures import figures
from pipeline.validation.reviewers import reviewer_agreement
from pipeline.validation.scope import Scope, scopes
from schemas.review_tables import VALIDATION
from schemas.settings import ValidationSettings

VALIDATE = Stage(
    "validate",
    1,
    ("queries", "pool", "verdicts", "review_sample", "review_strata", "reviews"),
    ("validation", "reviewer_agreement", "disagreements"),
)


def validate(
    tables: Tables,
    output: Output,
    settings: ValidationSettings,
    *,
    thresholds: Mapping[str, float],
    seed: int,
) -> None:
    """Estimate for the whole run what the labels of the sample say; see `interval.estimate` and `figures`.

    The label of a pair is what most reviewers said, skips aside; on a tie it has none. Only pairs of the standing
    sample enter estimates; answers are kept by pair, so that they count again when a later sample holds the pair.
    Nothing is written where the run has no sample.

    Args:
        tables: holds `queries`, `pool`, `verdicts`, `review_sample`, `review_strata` and `reviews`.
        output: takes `validation`, `reviewer_agreement` and `disagreements`.
        settings: number of resamples.
        thresholds: of the judge, by tenant; a tenant that is missing has none.
        seed: of the intervals and folds.
    """
    if not tables.rows("review_strata"):
        return
    rows = [
        figures(scope, _threshold(scope, thresholds), settings.bootstrap, seed + number)
        for number, scope in enumerate(scopes(tables))
    ]
    output.write("validation", pa.Table.from_pylist(rows, schema=VALIDATION.schema))
    output.write("reviewer_agreement", reviewer_agreement(tables, settings.bootstrap, seed))
    output.write("disagreements", disagreements(tables))
    sampled, labelled = tables.rows("review_sample"), int(str(rows[0]["labelled"]))
    lost = {name: int(str(rows[0][name])) for name in ("tied", "skipped")}
    lost["unanswered"] = sampled - labelled - sum(lost.values())
    dropped = {reason: n for reason, n in lost.items() if n}
    output.count(FunnelStep("validate", "sampled pairs", sampled, "labelled pairs", labelled, dropped))


def _threshold(scope: Scope, thresholds: Mapping[str, float]) -> float | None:
    of = {thresholds.get(tenant) for tenant in scope.tenants}
    return of.pop() if len(of) == 1 else None
