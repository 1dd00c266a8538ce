"""Measured systems that the labels favour: those with the model of the judge or of the pool's only neural retriever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.train.release.shared_models import EncoderModel, are_related, judge_models, lineage
from darklode.schemas.settings import Settings

MEASURED_SYSTEMS_SQL = "SELECT DISTINCT system FROM evaluation ORDER BY system"

Lineages = Mapping[str, tuple[EncoderModel, ...]]


def favored_systems(tables: Tables, settings: Settings) -> list[str]:
    """Warnings on systems in `evaluation` that the labels favour, a paragraph each; empty if there are none.

    Args:
        tables: `duckdb_views.all_tables` of an evaluated run.
        settings: the settings of that run: its encoders, and the retrievers of the pool.
    """
    names = tables.sql(MEASURED_SYSTEMS_SQL)["system"].to_pylist()
    measured = {name: lineage(settings.encoders[name]) for name in names if name in settings.encoders}
    return [*_shared_with_judge(tables, settings, measured), *_shared_with_pool(tables, settings, measured)]


def _shared_with_judge(tables: Tables, settings: Settings, measured: Lineages) -> Iterator[str]:
    """Systems with a judge's model, one warning per judge."""
    for models in judge_models(tables, settings.encoders):
        names = [name for name, own in measured.items() if are_related(own, models)]
        if names:
            yield (
                f"{_listed(names, 'shares its model', 'share their model')} with the judge ({models[0].name}): the "
                "labels are that model's own similarities, so its score can reach 1.000 and says nothing about "
                "relevance; do not compare it with other systems."
            )


def _shared_with_pool(tables: Tables, settings: Settings, measured: Lineages) -> Iterator[str]:
    """Systems with the model of the pool's only neural retriever, if there is one and the labels come from the pool."""
    neural = [name for name in settings.pool.retrievers if name in settings.encoders]
    if len(neural) != 1 or not tables.rows("qrels"):
        return
    models = lineage(settings.encoders[neural[0]])
    names = [name for name, own in measured.items() if are_related(own, models)]
    others = [name for name in names if name != neural[0]]
    retriever = f"{neural[0]} ({models[0].name})"
    if others:
        subject = f"{_listed(others, 'shares its model', 'share their model')} with {retriever}, the only"
    else:
        subject = f"{retriever} is the only"
    if names:
        yield (
            f"{subject} neural retriever of the pool: its best results were all judged, while other neural systems "
            "find texts that nobody judged and that count as not relevant; see Judged@10."
        )


def _listed(names: list[str], singular: str, plural: str) -> str:
    return f"{', '.join(names)} {singular if len(names) == 1 else plural}"
