"""Measured systems that the labels favour: those with the model of the judge or of the pool's only neural retriever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.judge.factory import members
from darklode.pipeline.judge.kinds.encoder import EncoderJudgeSettings
from darklode.pipeline.retrieve.retrievers.kinds import CompositeKind
from darklode.pipeline.train.release.shared_models import EncoderModel, are_related, judge_models, lineage
from darklode.schemas.pooling import LocalModel
from darklode.schemas.settings import Settings

MEASURED_SYSTEMS_SQL = "SELECT DISTINCT system FROM evaluation ORDER BY system"
RANKED_POSITIVES_SQL = "SELECT count(*) AS n FROM mined_test WHERE source LIKE 'relevance%'"

Lineage = tuple[EncoderModel, ...]


def favored_systems(tables: Tables, settings: Settings) -> list[str]:
    """Warnings on systems in `evaluation` that the labels favour, a paragraph each; empty if there are none.

    Args:
        tables: `duckdb_views.all_tables` of an evaluated run.
        settings: the settings of that run: its encoders, and the retrievers of the pool.
    """
    names = tables.sql(MEASURED_SYSTEMS_SQL)["system"].to_pylist()
    encoders = {name: settings.encoders[name] for name in names if name in settings.encoders}
    composites = {name: models for name in names if name not in encoders and (models := _models(name, settings))}
    if not encoders and not composites:
        return []
    judges = list(_judges(tables, settings))
    neural = [name for name in settings.pool.retrievers if name in settings.encoders]
    only_neural = neural[0] if len(neural) == 1 and tables.rows("qrels") else None
    if not judges and only_neural is None:
        return []
    lineages = {name: lineage(encoder) for name, encoder in encoders.items()}
    pool_warnings = _shared_with_pool(settings, only_neural, lineages) if only_neural else ()
    return [*_shared_with_judge(judges, lineages | composites), *pool_warnings]


def systems_with_judge_models(tables: Tables, settings: Settings) -> list[str]:
    """Systems in `evaluation` that share a model with a judge whose labels they are measured by.

    Args:
        tables: as for `favored_systems`.
        settings: as for `favored_systems`.
    """
    judges = list(_judges(tables, settings))
    names = tables.sql(MEASURED_SYSTEMS_SQL)["system"].to_pylist() if judges else []
    return [name for name in names if any(are_related(_models(name, settings), judge) for judge in judges)]


def _judges(tables: Tables, settings: Settings) -> Iterator[Lineage]:
    """Models of the judges that gave the labels or ranked the positives."""
    yield from judge_models(tables, settings.encoders, cross_encoders=True)
    yield from _ranker_models(tables, settings)


def _models(name: str, settings: Settings) -> Lineage:
    """The models of a retriever and of those that it is made of; empty if there are none."""
    if name in settings.encoders:
        return lineage(settings.encoders[name])
    kind = settings.retrievers.get(name)
    own = lineage(kind) if isinstance(kind, LocalModel) else ()
    sources = kind.sources if isinstance(kind, CompositeKind) else ()
    return own + tuple(model for source in sources for model in _models(source, settings))


def _ranker_models(tables: Tables, settings: Settings) -> Iterator[Lineage]:
    """Models of the encoder judges that ranked the test positives of a mined run."""
    if settings.relevance.ranker != "judge" or not tables.sql(RANKED_POSITIVES_SQL)["n"][0].as_py():
        return
    for member in members(settings.judge):
        if isinstance(member, EncoderJudgeSettings) and member.encoder in settings.encoders:
            yield lineage(settings.encoders[member.encoder])


def _shared_with_judge(judges: list[Lineage], lineages: Mapping[str, Lineage]) -> Iterator[str]:
    """Systems with a judge's model, one warning per judge."""
    for models in judges:
        names = [name for name, own in lineages.items() if are_related(own, models)]
        if names:
            yield (
                f"{_listed(names, 'shares its model', 'share their model')} with the judge ({models[0].name}): the "
                "labels are that model's own scores, so measures can reach 1.000 and say nothing about "
                "relevance; do not compare it with other systems."
            )


def _shared_with_pool(settings: Settings, only_neural: str, lineages: Mapping[str, Lineage]) -> Iterator[str]:
    """Systems with the model of the pool's only neural retriever."""
    models = lineage(settings.encoders[only_neural])
    names = [name for name, own in lineages.items() if are_related(own, models)]
    other_names = [name for name in names if name != only_neural]
    retriever = f"{only_neural} ({models[0].name})"
    if other_names:
        subject = f"{_listed(other_names, 'shares its model', 'share their model')} with {retriever}, the only"
    else:
        subject = f"{retriever} is the only"
    if names:
        yield (
            f"{subject} neural retriever of the pool: its best results were all judged, while other neural systems "
            "find texts that nobody judged and that count as not relevant; see Judged@10."
        )


def _listed(names: list[str], singular: str, plural: str) -> str:
    return f"{', '.join(names)} {singular if len(names) == 1 else plural}"
