"""The stage `distilled_predictions`: the distilled judge on queries that training did not see, beside its teacher."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Output, Stage, Tables
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.judge.pairs import distinct
from darklode.pipeline.reranker.distil.comparison import (
    HeldOutPairs,
    KappaInterval,
    LogitCalibration,
    cascade_bands,
    compare,
)
from darklode.pipeline.reranker.distil.sampling import TEST
from darklode.pipeline.reranker.distil.training import PairTexts, load_distilled
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS
from darklode.schemas.distil_tables import CASCADE_BANDS, DISTILLED_PAIRS, DISTILLED_PREDICTIONS
from darklode.schemas.reranker_tables import RERANKER_LOG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from darklode.pipeline.base.types import Doubles
    from darklode.pipeline.reranker.model import InitialReranker, TrainableReranker

PREDICTIONS_STAGE = Stage(
    "distilled_predictions",
    2,
    (DISTILLED_PAIRS.name, RERANKER_LOG.name, ADAPTER_WEIGHTS.name),
    (DISTILLED_PREDICTIONS.name, CASCADE_BANDS.name),
)

MARGIN = 0.02
"""Kappa with people that a distilled judge may be below its teacher."""

MIN_TEACHER_KAPPA = 0.6
"""Minimum kappa with the teacher where no people's labels compare the two: "substantial" (Landis and Koch 1977)."""

PAIRS_PER_BLOCK = 1 << 10
"""Pairs scored between two reports of progress."""


def predict_held_out(
    tables: Tables, output: Output, source: Tables, initial: InitialReranker, *, teacher_rate: float | None, seed: int
) -> None:
    """Score the test queries' pairs, calibrate, compare with the teacher, and measure the bands of a cascade.

    Calibration and threshold are fitted to people's labels on these queries if there are enough, else to the teacher's;
    predictions come from a calibration on other queries.

    Args:
        tables: the tables in `PREDICTIONS_STAGE.reads`.
        output: receives `distilled_predictions` and `cascade_bands`; its facts have calibration, kappas and speeds.
        source: the judged run, which has the texts.
        initial: the model that training started from.
        teacher_rate: pairs per second of the teacher in the run; None: unknown.
        seed: seed of folds and bootstrap.
    """
    from darklode.pipeline.train.fit.determinism import deterministic

    texts = PairTexts.of_part(tables, source, TEST)
    with deterministic(0):
        logit, rate = score(output, load_distilled(tables, initial), texts)
    pairs = held_out_pairs(texts.rows, logit)
    on_people = pairs.fits_people
    probability, relevant = pairs.cross_fitted(seed, on_people=on_people)
    fitted = pairs.calibration(np.ones(len(logit), bool), on_people=on_people)
    final = fitted or LogitCalibration(1.0, 0.0, 0.5)
    ids = {name: texts.rows[name] for name in ("tenant", "query_id", "chunk_id", "people")}
    columns = {"logit": logit, "probability": probability, "relevant": relevant, "teacher": pairs.teacher}
    output.write(DISTILLED_PREDICTIONS.name, DISTILLED_PREDICTIONS.rows(ids | columns))
    tenant = texts.rows["tenant"][0].as_py()
    bands = [{"tenant": tenant, **row} for row in cascade_bands(pairs, final, seed)]
    output.write(CASCADE_BANDS.name, pa.Table.from_pylist(bands, schema=CASCADE_BANDS.schema))
    output.facts |= {
        "calibration": asdict(final),
        "calibrated on": ("people's labels" if on_people else "the teacher's labels") if fitted else None,
        "comparison": asdict(compare(pairs, relevant, seed)),
        "pairs per second": rate,
        "teacher's pairs per second": teacher_rate,
        "queries": len(np.unique(pairs.query)),
    }
    n_rows = texts.rows.num_rows
    output.count(FunnelStep(PREDICTIONS_STAGE.name, "test pairs", n_rows, "predictions", n_rows))


def score(output: Output, model: TrainableReranker, texts: PairTexts) -> tuple[Doubles, float]:
    """Logits of the pairs, and pairs per second on this machine (one thread), tokenization included."""
    queries, chunks = texts.queries.to_pylist(), texts.texts.to_pylist()
    started, blocks = time.perf_counter(), []
    for start in range(0, len(chunks), PAIRS_PER_BLOCK):
        block = slice(start, start + PAIRS_PER_BLOCK)
        blocks.append(model.scores(queries[block], chunks[block]))
        output.progress(min(start + PAIRS_PER_BLOCK, len(chunks)), len(chunks), "pairs of the test queries")
    return np.concatenate(blocks), round(len(chunks) / (time.perf_counter() - started), 1)


def held_out_pairs(rows: pa.Table, logit: Doubles) -> HeldOutPairs:
    """Rows of `distilled_pairs` with their scores."""
    people = pc.fill_null(rows["people"].cast(pa.float64()), float("nan")).to_numpy()
    weight = pc.fill_null(rows["people_weight"], 1.0).to_numpy()
    return HeldOutPairs(distinct(rows["query_id"])[1], logit, rows["relevant"].to_numpy(), people, weight)


def pairs_per_second(judging: Manifest | None) -> float | None:
    """The teacher's pairs per second in a run's manifest of `judge`; None if it reused verdicts or was resumed."""
    if judging is None or not judging.seconds:
        return None
    facts = judging.facts
    is_whole = facts.get("asked") and not facts.get("hits")
    return round(facts["asked"] / judging.seconds, 2) if is_whole else None


def refusal(facts: Mapping[str, Any], min_agreement: float | None) -> str | None:
    """Why the distilled judge must not replace its teacher; None if it agrees as well.

    With people's labels: the interval of its kappa minus the teacher's is below `-MARGIN`. Without: its kappa with the
    teacher is below the minimum.

    Args:
        facts: of the stage `distilled_predictions`.
        min_agreement: minimum kappa with the teacher; None: `MIN_TEACHER_KAPPA` without people's labels, else none.
    """
    comparison = facts["comparison"]
    if facts["calibrated on"] is None:
        return "its scores do not rise with the labels"
    difference, kappa = comparison["difference"], comparison["teacher_kappa"]["value"]
    has_interval = difference is not None and difference["high"] is not None
    if has_interval and difference["high"] < -MARGIN:
        return f"it agrees less with people than its teacher: kappa {format_interval(difference, sign='+')}"
    least = MIN_TEACHER_KAPPA if min_agreement is None and not has_interval else min_agreement
    if least is not None and (kappa is None or kappa < least):
        return f"its kappa with the teacher is {format_number(kappa)}, below {least:g}"
    return None


def format_number(value: float | None, sign: str = "") -> str:
    """Two decimals."""
    return "unknown" if value is None else f"{value:{sign}.2f}"


def format_interval(figure: Mapping[str, Any] | KappaInterval, sign: str = "") -> str:
    """A figure with its interval."""
    values = asdict(figure) if isinstance(figure, KappaInterval) else figure
    if values["low"] is None:
        return format_number(values["value"], sign)
    low, high = format_number(values["low"], sign), format_number(values["high"], sign)
    return f"{format_number(values['value'], sign)} ({low} to {high})"


def format_comparison(facts: Mapping[str, Any]) -> str:
    """The comparison in a few sentences."""
    comparison = facts["comparison"]
    sentences = [
        f"On {facts['queries']:,} test queries the distilled judge agrees with its teacher on "
        f"{comparison['agreement']:.1%} of the pairs, kappa {format_interval(comparison['teacher_kappa'])}."
    ]
    if comparison["difference"] is not None:
        teacher, student = comparison["people_kappas"]
        sentences.append(
            f"Kappa with people's {comparison['labels']:,} labels: teacher {format_interval(teacher)}, distilled "
            f"{format_interval(student)}, difference {format_interval(comparison['difference'], sign='+')}."
        )
    rate, teacher_rate = facts["pairs per second"], facts["teacher's pairs per second"]
    ratio = f", {rate / teacher_rate:,.0f} times its teacher's" if teacher_rate else "; the teacher's speed is unknown"
    sentences.append(f"{rate:,.0f} pairs a second on one core{ratio}.")
    return " ".join(sentences)


def require_agreement(facts: Mapping[str, Any], min_agreement: float | None) -> str:
    """The comparison in a few sentences.

    Raises:
        NoLift: the distilled judge agrees clearly less than its teacher; the message says how to use it.
    """
    reason = refusal(facts, min_agreement)
    if reason:
        raise NoLift(
            f"The distilled judge must not replace its teacher: {reason}. {format_comparison(facts)} Use it in "
            "judge.kind cascade, where it answers only what it is sure of"
        )
    return format_comparison(facts)
