"""What a build, its mining and its index take at any size: each stage extrapolated from its own measured growth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import ceil

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Row
from darklode.pipeline.scale.measurements import Measured, StageCosts
from darklode.schemas.scale import Hardware

CHUNK = 500.0
"""Characters of a chunk (`chunk.size`)."""

LIMIT = 1.15
"""An exponent above it does not scale."""

HOUR, GB, MB = 3600.0, 1e9, 1e6
ASKED_IN_ONE = "search "
"""What a search of queries is called, before the retriever's name; what it fits is `fit` and the name."""

LANGUAGE_MODEL = "judge llm"
EMBED, EXACT = "embed", "search vectors"
SEMANTIC_CODEBOOKS, INDEX = "semantic_codebooks", "index"
KEY_BYTES = 16
"""Of a vector in the embedding cache, beside its numbers."""
SPREAD = (
    "chunk", "embed", "fit ", "search ", "judge llm", "triplets",
    "click_evidence", "weight_terms", "associate", "mined_pairs", "semantic_ids",
)  # fmt: skip
"""Stages whose work for one tenant is spread over machines where `runner.kind` is ray; all others take a process."""


@dataclass(frozen=True)
class PlannedStage:
    """A stage at the size that was asked for.

    Attributes:
        job: build, mine or index.
        stage: its name.
        per: what its size counts.
        size: of all tenants.
        exponent: of processor seconds, with its interval; the search of queries counts a query's.
        assumed: the exponent stayed open, and 1 was taken.
        hours: processor hours of all tenants, with the interval that the fit leaves.
        wall_hours: on the machines that there are.
        machines: so many of them work at once.
        memory_gb: of one process at work on one tenant.
        flat: whether memory had stopped to grow where it was measured.
        storage_gb: what it writes.
        gpu_hours: of encoding.
        tokens: of the judge, prompts and answers.
        money: of machines, GPUs and tokens.
        beyond: times the largest size that was measured, of one tenant.
        because: why it does not scale; empty where it does.
    """

    job: str
    stage: str
    per: str
    size: float
    exponent: float
    exponent_low: float
    exponent_high: float
    assumed: bool
    hours: float
    hours_low: float
    hours_high: float
    wall_hours: float
    machines: int
    memory_gb: float
    flat: bool
    storage_gb: float
    gpu_hours: float
    tokens: float
    money: float
    beyond: float
    because: str


def plan_stages(measured: Measured, hardware: Hardware, documents: float, queries: float) -> list[PlannedStage]:
    """Each stage of the three jobs.

    Args:
        measured: unit costs.
        hardware: machines, prices and how the work is cut.
        documents: of all tenants.
        queries: likewise; a build's log and a search log have the same.

    Raises:
        SettingsError: a retriever was not measured, or an encoder has no GPU.
    """
    _check(measured, hardware)
    sizes = _sizes(measured, hardware, documents, queries)
    return [_plan_stage(stage, measured, hardware, sizes) for stage in _selected_stages(measured, hardware)]


def totals(rows: list[PlannedStage], hardware: Hardware) -> Row:
    """All stages together, one after the other."""
    added = ("hours", "hours_low", "hours_high", "wall_hours", "storage_gb", "gpu_hours", "tokens", "money")
    total: Row = {name: sum(getattr(row, name) for row in rows) for name in added}
    total["memory_gb"] = max((row.memory_gb for row in rows), default=0.0)
    month = total["storage_gb"] * hardware.prices.storage_gb_month
    per_machine = 24 * hardware.machines.cores
    return total | {"storage_money_month": month, "machines_for_a_day": ceil(total["hours"] / per_machine)}


def as_rows(rows: list[PlannedStage]) -> list[Row]:
    """Plain values, for JSON."""
    return [asdict(row) for row in rows]


def _check(measured: Measured, hardware: Hardware) -> None:
    encoder_names = {
        stage.name.removeprefix(ASKED_IN_ONE) for stage in measured.stages if stage.name.startswith(ASKED_IN_ONE)
    }
    unknown = sorted(set(hardware.work.retrievers) - encoder_names)
    if unknown:
        raise SettingsError(
            f"work.retrievers: {', '.join(unknown)} was not measured; these were: {', '.join(sorted(encoder_names))}"
        )
    if hardware.encoders and hardware.gpus is None:
        raise SettingsError("encoders: there are no gpus to encode on; add the section gpus, or leave encoders out")


def _selected_stages(measured: Measured, hardware: Hardware) -> Iterator[StageCosts]:
    """The stages that are paid for: of retrievers those that are asked for, of judges the language model."""
    names = {f"{kind} {name}" for name in hardware.work.retrievers for kind in ("fit", "search")}
    encoding = {EMBED, EXACT} if hardware.encoders else set()
    for stage in measured.stages:
        retriever = stage.name.startswith(("fit ", ASKED_IN_ONE)) or stage.name == EMBED
        vectors = stage.job == "index" and not hardware.encoders
        if stage.name != "judge" and not vectors and (not retriever or stage.name in names | encoding):
            yield stage


def _sizes(measured: Measured, hardware: Hardware, documents: float, queries: float) -> Mapping[str, float]:
    work, shares = hardware.work, measured.shares
    n_kept = queries * (work.kept or shares.kept)
    return {
        "chunks": documents * max(work.characters / CHUNK, 1.0),
        "raw_queries": queries,
        "queries": n_kept,
        "pairs": n_kept * (work.candidates or shares.candidates),
        "impressions": queries * work.impressions,
    }


def _plan_stage(stage: StageCosts, measured: Measured, hardware: Hardware, sizes: Mapping[str, float]) -> PlannedStage:
    machines, parts = hardware.machines, hardware.work.tenants
    judged = hardware.work.judged if stage.name == LANGUAGE_MODEL else 1.0
    size = sizes[stage.per] / parts * judged
    ratios = _ratios(stage, measured, hardware)
    paid = (sizes[stage.times] / parts if stage.times else 1.0) * parts * sum(ratios) / HOUR / machines.speed
    hours, (low, high) = stage.growth.cost_at(size) * paid, stage.growth.span(size)
    memory = stage.megabytes(size, max(ratios)) * MB / GB
    workers, wall = _wall_hours(stage.name, hours, memory, hardware)
    gpu, gpu_wall = _gpu_hours(hardware, sizes) if stage.name == EMBED else (0.0, 0.0)
    tokens, paid_tokens = _tokens(measured, hardware, sizes) if stage.name == LANGUAGE_MODEL else (0.0, 0.0)
    wall = max(wall, gpu_wall)
    money = wall * workers * machines.price_per_hour + paid_tokens
    money += gpu * hardware.gpus.price_per_hour if hardware.gpus else 0.0
    return PlannedStage(
        stage.job, stage.name, stage.per + (f" × {stage.times}" if stage.times else ""), size * parts,
        stage.growth.exponent, *stage.growth.exponent_span, stage.growth.assumed, hours, low * paid, high * paid, wall,
        workers, memory, stage.flat,
        _bytes_written(stage, size, measured, hardware) * parts / GB, gpu, tokens, money, size / stage.points[-1].size,
        "; ".join(_reasons(stage, memory, hardware)),
    )  # fmt: skip


def _handles_vectors(stage: StageCosts) -> bool:
    return stage.job == "index" or stage.name in (EMBED, EXACT)


def _ratios(stage: StageCosts, measured: Measured, hardware: Hardware) -> list[float]:
    """Numbers of a vector against the measured ones, of each encoder; a single 1 where a stage handles no vectors."""
    if not _handles_vectors(stage) or not hardware.encoders:
        return [1.0]
    return [encoder.dimensions / measured.vectors.dimensions for encoder in hardware.encoders.values()]


def _bytes_written(stage: StageCosts, size: float, measured: Measured, hardware: Hardware) -> float:
    """Bytes of one tenant: the embedding cache keeps whole vectors, an index a byte a number, codebooks centres."""
    total_bytes, vectors = stage.bytes(size), measured.vectors
    if not _handles_vectors(stage) or not hardware.encoders:
        return total_bytes
    vector_bytes, row = 0.0, vectors.dimensions * vectors.bytes_per_number + KEY_BYTES
    for encoder in hardware.encoders.values():
        if stage.name == EMBED:
            vector_bytes += total_bytes * (encoder.dimensions * encoder.bytes_per_number + KEY_BYTES) / row
        elif stage.name == SEMANTIC_CODEBOOKS:
            vector_bytes += total_bytes * encoder.dimensions / vectors.dimensions
        elif stage.name == INDEX:
            vector_bytes += max(total_bytes + size * (encoder.dimensions - vectors.dimensions), 0.0)
        else:
            vector_bytes += total_bytes
    return vector_bytes


def _wall_hours(name: str, hours: float, memory: float, hardware: Hardware) -> tuple[int, float]:
    """Machines at work at once, and hours by the clock: processes of one core, as many as memory lets be."""
    machines, parts = hardware.machines, hardware.work.tenants
    each = max(min(machines.cores, int(machines.memory_gb / memory)), 1)
    if name.startswith(SPREAD):
        return machines.count, hours / (machines.count * each)
    waves = ceil(parts / (machines.count * each))
    return min(machines.count, ceil(parts / each)), waves * hours / parts


def _gpu_hours(hardware: Hardware, sizes: Mapping[str, float]) -> tuple[float, float]:
    texts = sizes["chunks"] + sizes["queries"]
    hours = sum(texts / encoder.texts_per_second for encoder in hardware.encoders.values()) / HOUR
    return hours, hours / hardware.gpus.count if hardware.gpus else 0.0


def _tokens(measured: Measured, hardware: Hardware, sizes: Mapping[str, float]) -> tuple[float, float]:
    """How many, and what they cost."""
    work, shares, prices = hardware.work, measured.shares, hardware.prices
    n_judged = sizes["pairs"] * work.judged
    prompt = n_judged * (work.prompt_tokens or shares.prompt_tokens)
    completion = n_judged * (work.completion_tokens or shares.completion_tokens)
    return prompt + completion, (prompt * prices.prompt_tokens + completion * prices.completion_tokens) / 1e6


def _reasons(stage: StageCosts, memory: float, hardware: Hardware) -> Iterator[str]:
    low, _ = stage.growth.exponent_span
    if stage.times and stage.growth.exponent > LIMIT - 1:
        yield f"each of {stage.times} asks all {stage.per} of its tenant: search a compressed index, or cut smaller"
    elif stage.growth.exponent > LIMIT and low > 1:
        yield f"exponent {stage.growth.exponent:.2f} is above {LIMIT}"
    if memory > hardware.machines.memory_gb:
        yield f"one tenant takes {memory:,.0f} GB, a machine has {hardware.machines.memory_gb:,.0f}: cut smaller"
