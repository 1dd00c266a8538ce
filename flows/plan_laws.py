"""What more labels would bring, by the laws of a folder and the costs of its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from darklode.flows.fit_laws import opened
from darklode.flows.runs import LAWS, noted, recorded
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.laws.fit import FIT
from darklode.pipeline.laws.plan import COSTS, Wanted, costs, plans
from darklode.schemas.law_tables import LAW_POINTS


def plan_laws(folder: str, wanted: Wanted, *, seed: int = 0) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Plan by each law of a folder; a price that is not said is that of the runs' judge.

    Args:
        folder: of `darklode laws run` or `fit`.
        wanted: budget, target and prices.
        seed: of the resamples.

    Returns:
        A plan for each measure and source, and what the runs' labels cost, as far as it is known.

    Raises:
        ArtifactError: the folder holds no points.
    """
    run = opened(folder)
    spent = _costs(run)
    if wanted.per_label is None:
        wanted = replace(wanted, per_label=spent.get("price_per_query"))
    rows = run.tables(LAW_POINTS.name).read(LAW_POINTS.name)
    return plans(rows, wanted, seed), spent


def _costs(run: Run) -> dict[str, Any]:
    """Of the builds that the points were trained on; of a file of points nobody knows."""
    from darklode.pipeline.judge.stage import JUDGE

    found = [Run(url) for url in noted(run)[LAWS]] if run.manifest(FIT) else []
    built = [one for one in found if one.manifest(JUDGE)]
    if not built:
        return {}
    prices = recorded(built[0]).settings.judge.prices()
    return costs([one.tables("verdicts").sql(COSTS).to_pylist()[0] for one in built], prices)
