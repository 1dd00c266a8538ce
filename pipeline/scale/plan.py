"""What a build, its mining and its index take at any size: each stage extrapolated from its own measured growth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.scale.measured import Measured, StageCosts
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
    "click_evidence", "plan_queries", "associate", "mined_pairs", "semantic_ids",
)  # fmt: skip
"""Stages whose work for one tenant is spread over machines where `runner.kind` is ray; all others take a process."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Planned:
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


def plan(measured: Measured, hardware: Hardware, documents: float, queries: float) -> list[Planned]:
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
    return [_planned(one, measured, hardware, sizes) for one in _wanted(measured, hardware)]


def totals(rows: list[Planned], hardware: Hardware) -> Row:
    """All stages together, one after the other."""
    added = ("hours", "hours_low", "hours_high", "wall_hours", "storage_gb", "gpu_hours", "tokens", "money")
    found: Row = {name: sum(getattr(row, name) for row in rows) for name in added}
    found["memory_gb"] = max((row.memory_gb for row in rows), default=0.0)
    month = found["storage_gb"] * hardware.prices.storage_gb_month
    per_machine = 24 * hardware.machines.cores
    return found | {"storage_money_month": month, "machines_for_a_day": ceil(found["hours"] / per_machine)}


def as_rows(rows: list[Planned]) -> list[Row]:
    """Plain values, for JSON."""
    return [asdict(row) for row in rows]


def _check(measured: Measured, hardware: Hardware) -> None:
    known = {one.name.removeprefix(ASKED_IN_ONE) for one in measured.stages if one.name.startswith(ASKED_IN_ONE)}
    unknown = sorted(set(hardware.work.retrievers) - known)
    if unknown:
        raise SettingsError(
            f"work.retrievers: {', '.join(unknown)} was not measured; these were: {', '.join(sorted(known))}"
        )
    if hardware.encoders and hardware.gpus is None:
        raise SettingsError("encoders: there are no gpus to encode on; add the section gpus, or leave encoders out")


def _wanted(measured: Measured, hardware: Hardware) -> Iterator[StageCosts]:
    """The stages that are paid for: of retrievers those that are asked for, of judges the language model."""
    names = {f"{kind} {name}" for name in hardware.work.retrievers for kind in ("fit", "search")}
    encoding = {EMBED, EXACT} if hardware.encoders else set()
    for one in measured.stages:
        retriever = one.name.startswith(("fit ", ASKED_IN_ONE)) or one.name == EMBED
        vectors = one.job == "index" and not hardware.encoders
        if one.name != "judge" and not vectors and (not retriever or one.name in names | encoding):
            yield one


def _sizes(measured: Measured, hardware: Hardware, documents: float, queries: float) -> Mapping[str, float]:
    work, shares = hardware.work, measured.shares
    kept = queries * (work.kept or shares.kept)
    return {
        "chunks": documents * max(work.characters / CHUNK, 1.0),
        "raw_queries": queries,
        "queries": kept,
        "pairs": kept * (work.candidates or shares.candidates),
        "impressions": queries * work.impressions,
    }


def _planned(one: StageCosts, measured: Measured, hardware: Hardware, sizes: Mapping[str, float]) -> Planned:
    machines, parts = hardware.machines, hardware.work.tenants
    judged = hardware.work.judged if one.name == LANGUAGE_MODEL else 1.0
    size = sizes[one.per] / parts * judged
    ratios = _ratios(one, measured, hardware)
    paid = (sizes[one.times] / parts if one.times else 1.0) * parts * sum(ratios) / HOUR / machines.speed
    hours, (low, high) = one.growth.at(size) * paid, one.growth.span(size)
    memory = one.megabytes(size, max(ratios)) * MB / GB
    workers, wall = _wall(one.name, hours, memory, hardware)
    gpu, gpu_wall = _gpu_hours(hardware, sizes) if one.name == EMBED else (0.0, 0.0)
    tokens, paid_tokens = _tokens(measured, hardware, sizes) if one.name == LANGUAGE_MODEL else (0.0, 0.0)
    wall = max(wall, gpu_wall)
    money = wall * workers * machines.price_per_hour + paid_tokens
    money += gpu * hardware.gpus.price_per_hour if hardware.gpus else 0.0
    return Planned(
        one.job, one.name, one.per + (f" × {one.times}" if one.times else ""), size * parts,
        one.growth.exponent, *one.growth.exponent_span, one.growth.assumed, hours, low * paid, high * paid, wall,
        workers, memory, one.flat,
        _written(one, size, measured, hardware) * parts / GB, gpu, tokens, money, size / one.points[-1].size,
        "; ".join(_because(one, memory, hardware)),
    )  # fmt: skip


def _handles_vectors(one: StageCosts) -> bool:
    return one.job == "index" or one.name in (EMBED, EXACT)


def _ratios(one: StageCosts, measured: Measured, hardware: Hardware) -> list[float]:
    """Numbers of a vector against the measured ones, of each encoder; a single 1 where a stage handles no vectors."""
    if not _handles_vectors(one) or not hardware.encoders:
        return [1.0]
    return [encoder.dimensions / measured.vectors.dimensions for encoder in hardware.encoders.values()]


def _written(one: StageCosts, size: float, measured: Measured, hardware: Hardware) -> float:
    """Bytes of one tenant: the embedding cache keeps whole vectors, an index a byte a number, codebooks centres."""
    whole, vectors = one.bytes(size), measured.vectors
    if not _handles_vectors(one) or not hardware.encoders:
        return whole
    found, row = 0.0, vectors.dimensions * vectors.bytes_per_number + KEY_BYTES
    for encoder in hardware.encoders.values():
        if one.name == EMBED:
            found += whole * (encoder.dimensions * encoder.bytes_per_number + KEY_BYTES) / row
        elif one.name == SEMANTIC_CODEBOOKS:
            found += whole * encoder.dimensions / vectors.dimensions
        elif one.name == INDEX:
            found += max(whole + size * (encoder.dimensions - vectors.dimensions), 0.0)
        else:
            found += whole
    return found


def _wall(name: str, hours: float, memory: float, hardware: Hardware) -> tuple[int, float]:
    """Machines at work at once, and hours by the clock: processes of one core, as many as memory lets be."""
    machines, parts = hardware.machines, hardware.work.tenants
    each = max(min(machines.cores, int(machines.memory_gb / memory)), 1)
    if name.startswith(SPREAD):
        return machines.count, hours / (machines.count * each)
    waves = ceil(parts / (machines.count * each))
    return min(machines.count, ceil(parts / each)), waves * hours / parts


def _gpu_hours(hardware: Hardware, sizes: Mapping[str, float]) -> tuple[float, float]:
    texts = sizes["chunks"] + sizes["queries"]
    hours = sum(texts / one.texts_per_second for one in hardware.encoders.values()) / HOUR
    return hours, hours / hardware.gpus.count if hardware.gpus else 0.0


def _tokens(measured: Measured, hardware: Hardware, sizes: Mapping[str, float]) -> tuple[float, float]:
    """How many, and what they cost."""
    work, shares, prices = hardware.work, measured.shares, hardware.prices
    asked = sizes["pairs"] * work.judged
    prompt = asked * (work.prompt_tokens or shares.prompt_tokens)
    completion = asked * (work.completion_tokens or shares.completion_tokens)
    return prompt + completion, (prompt * prices.prompt_tokens + completion * prices.completion_tokens) / 1e6


def _because(one: StageCosts, memory: float, hardware: Hardware) -> Iterator[str]:
    low, _ = one.growth.exponent_span
    if one.times and one.growth.exponent > LIMIT - 1:
        yield f"each of {one.times} asks all {one.per} of its tenant: search a compressed index, or cut smaller"
    elif one.growth.exponent > LIMIT and low > 1:
        yield f"exponent {one.growth.exponent:.2f} is above {LIMIT}"
    if memory > hardware.machines.memory_gb:
        yield f"one tenant takes {memory:,.0f} GB, a machine has {hardware.machines.memory_gb:,.0f}: cut smaller"
