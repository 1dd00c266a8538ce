"""The funnel: what came into each step of a build, what left it, and why the rest did not."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from pipeline.artifacts import FunnelStep, Manifest, Output, Run, Stage
from schemas.tables import FUNNEL

FUNNEL_STAGE = Stage("funnel", 1, (), ("funnel",))

BUILD_ORDER = tuple(
    "ingest_documents ingest_queries clean split chunk search pool calibrate judge label triplets audit funnel".split()
)
"""The stages of a build, in data order."""

MINE_ORDER = tuple(
    "ingest_documents chunk ingest_logs click_model click_evidence log_queries fit_planner plan_queries associate "
    "relevance mined_pairs verify mined_triplets mined_test funnel".split()
)
"""The stages of mining, in data order."""


def funnel(run: Run, output: Output) -> None:
    """Write the steps that the complete stages counted, in the order of the job; other stages follow by name.

    A step has one row per reason for which it dropped rows, or one row without a reason if it dropped none.
    """
    output.write("funnel", funnel_of(run.manifests()))


def funnel_of(manifests: Mapping[str, Manifest]) -> pa.Table:
    """The funnel that some complete stages counted, as rows of `funnel`."""
    steps = [step for stage in in_build_order(manifests) for step in manifests[stage].funnel]
    rows = [(place, step, *drop) for place, step in enumerate(steps) for drop in _drops(step)]
    columns = {
        "position": [place for place, *_ in rows],
        "reason": [reason for *_, reason, _ in rows],
        "dropped": [dropped for *_, dropped in rows],
    }
    for name in ("step", "unit_in", "rows_in", "unit_out", "rows_out"):
        columns[name] = [getattr(step, name) for _, step, *_ in rows]
    return FUNNEL.rows(dict(columns))


def in_build_order(stages: Iterable[str]) -> list[str]:
    """The stages in the order of the build; those that are no part of it come last, by name."""
    stages = list(stages)
    order = MINE_ORDER if "ingest_logs" in stages else BUILD_ORDER
    place = {stage: number for number, stage in enumerate(order)}
    return sorted(stages, key=lambda stage: (place.get(stage, len(place)), stage))


def _drops(step: FunnelStep) -> list[tuple[str | None, int]]:
    return [(reason, dropped) for reason, dropped in step.dropped.items() if dropped] or [(None, 0)]
