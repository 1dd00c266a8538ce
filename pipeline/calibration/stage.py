"""The stage that holds the judge against human labels, before it judges the pool."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.artifacts import Output, Stage, Tables
from pipeline.calibration.compared import Compared
from pipeline.calibration.labels import human_labels
from pipeline.calibration.reliability import Curve, reliability_curve
from pipeline.corpora import TenantChunks
from pipeline.errors import SettingsError
from pipeline.judges.pairs import pair_blocks
from pipeline.judges.port import Judge
from pipeline.raters import (
    MIN_LABELS,
    MIN_OF_EACH,
    cohens_kappa,
    confusion,
    cross_validated_kappa,
    fit_threshold,
)
from schemas.settings import JudgeSettings
from schemas.tables import CALIBRATION, RELIABILITY

CALIBRATE = Stage("calibrate", 1, ("queries", "chunks", "pool"), ("human_labels", "calibration", "reliability"))


def calibrate(
    tables: Tables,
    output: Output,
    settings: JudgeSettings,
    *,
    judge_for: Callable[[TenantChunks], Judge],
    tenant: str,
    seed: int,
) -> None:
    """Judge the pairs that people labelled, and compare; without human labels nothing is written.

    Each tenant is compared by itself. With less than `MIN_LABELS` labelled pairs that have a probability, or less
    than `MIN_OF_EACH` that are relevant or not, the labels are compared, but no curve is drawn and nothing fitted.

    Args:
        tables: holds `queries`, `chunks` and `pool`.
        output: takes `human_labels`, `calibration`, `reliability`, and the labels that cannot be used as rejects.
        settings: `human` is the file of labels.
        judge_for: builds the judge of a tenant from its chunks.
        tenant: of labels that name none.
        seed: of the folds of the cross-validation.

    Raises:
        InputError: the file cannot be read, or labels no pair of the pool.
    """
    if settings.human is None:
        return
    labels = human_labels(tables, output, settings.human, tenant)
    output.write("human_labels", labels)
    with asyncio.Runner() as runner:
        for one in pc.unique(labels["tenant"]).to_pylist():
            own = labels.filter(pc.equal(labels["tenant"], one))
            chunks = TenantChunks(tables, one)
            judge = judge_for(chunks)
            replies = [runner.run(judge.judge(pairs)) for pairs in pair_blocks(tables, chunks, own)]
            _write(output, one, judge.judge_id, settings, Compared.of(own, pa.concat_tables(replies)), seed)


def _write(output: Output, tenant: str, judge_id: str, settings: JudgeSettings, compared: Compared, seed: int) -> None:
    rated = compared.rated()
    row: dict[str, object] = {"tenant": tenant, "judge_id": judge_id, "probabilities": len(rated.query)}
    threshold: float | None = settings.cut if not settings.panel or settings.vote == "mean" else None
    relevant = compared.relevant
    if rated.enough:
        curve, found = reliability_curve(rated.probability, rated.positive), _fitted(rated, seed)
        output.write("reliability", _reliability(tenant, curve))
        row |= {"ece": curve.ece, **found}
        fitted = found["fitted_threshold"]
        if settings.threshold == "fitted" and fitted is not None:
            threshold, relevant = fitted, compared.relevant_from(fitted)
    counts = confusion(relevant[compared.read], compared.positive[compared.read])
    row |= {"threshold": threshold, "kappa": _known(cohens_kappa(counts))}
    row |= {name: int(count) for name, count in counts._asdict().items()}
    row |= {"labels": len(compared.read), "unreadable": int((~compared.read).sum())}
    output.write("calibration", pa.Table.from_pylist([row], schema=CALIBRATION.schema))


def _fitted(rated: Compared, seed: int) -> dict[str, float | None]:
    found = fit_threshold(rated.probability, rated.positive)
    if found is None:
        return dict.fromkeys(("fitted_threshold", "fitted_kappa", "cross_validated_kappa"))
    crossed = cross_validated_kappa(rated.probability, rated.positive, rated.query, seed)
    return {"fitted_threshold": found[0], "fitted_kappa": found[1], "cross_validated_kappa": _known(crossed)}


def _reliability(tenant: str, curve: Curve) -> pa.Table:
    bins = len(curve.labels)
    columns = {field.name: getattr(curve, field.name) for field in fields(curve)}
    return RELIABILITY.rows({"tenant": pa.repeat(tenant, bins), "bin": list(range(bins))} | columns)


def _known(value: float | NDArray[np.float64]) -> float | None:
    return float(value) if math.isfinite(value) else None


def fitted_thresholds(tables: Tables) -> dict[str, float]:
    """The threshold of each tenant of the pool, as `judge.threshold` fitted asks for it.

    Args:
        tables: holds `calibration` and `pool`.

    Raises:
        SettingsError: there is none for a tenant.
    """
    rows = tables.read("calibration", ["tenant", "fitted_threshold"]).to_pylist()
    found = {row["tenant"]: row["fitted_threshold"] for row in rows if row["fitted_threshold"] is not None}
    asked = tables.sql("SELECT DISTINCT tenant FROM pool ORDER BY tenant")["tenant"].to_pylist()
    missing = [tenant for tenant in asked if tenant not in found]
    if missing:
        raise SettingsError(
            f"judge.threshold: none could be fitted for {', '.join(missing[:5])}; at least {MIN_LABELS} labelled pairs "
            f"with a probability are needed, {MIN_OF_EACH} of them relevant and {MIN_OF_EACH} not, and a judge that "
            "agrees with them better than chance; label more, or give a number"
        )
    return found
