"""Which stages of a run are complete."""

from pipeline.artifacts import Manifest, digest
from pipeline.funnel import BUILD_ORDER, MINE_ORDER, in_build_order
from pipeline.report.source import Source
from schemas.tables import TABLES

COMPLETE = "complete"
MISSING = "not complete"
OLDER = "made from tables that have changed since"


def standing(source: Source) -> dict[str, str]:
    """The stages that belong to the run, in data order, each with its state."""
    stages = in_build_order({*source.manifests, *_expected(source)})
    return {stage: _state(source, stage) for stage in stages}


def incomplete(source: Source) -> dict[str, str]:
    """The stages that are not complete, or whose results are not of the tables that stand now."""
    return {stage: state for stage, state in standing(source).items() if state != COMPLETE}


def _expected(source: Source) -> list[str]:
    if not source.mined:
        return list(BUILD_ORDER)
    settings = source.settings
    left_out = set() if settings.mining.verify_share else {"verify"}
    if settings.relevance.ranker == "none" and not settings.mining.verify_share:
        left_out.add("chunk")
    if settings.planner.kind != "log":
        left_out.add("fit_planner")
    return [stage for stage in MINE_ORDER if stage not in left_out]


def _state(source: Source, stage: str) -> str:
    manifest = source.manifests.get(stage)
    if manifest is None:
        units = source.units.get(stage, 0)
        return f"{MISSING}; units of its work on disk: {units:,}" if units else MISSING
    return COMPLETE if _reads_what_stands(source, manifest) else OLDER


def _reads_what_stands(source: Source, manifest: Manifest) -> bool:
    read = {name: seen for name, seen in manifest.inputs.items() if name in TABLES}
    return all(name in source.written and seen == digest(source.tables.parts(name)) for name, seen in read.items())
