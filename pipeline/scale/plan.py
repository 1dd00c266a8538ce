"""Resource plan of build, mining and index jobs at any size, extrapolated stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import ceil

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Row
from darklode.pipeline.scale.measurements import Measured, StageCosts
from darklode.schemas.scale import Hardware

CHUNK_CHARACTERS = 500.0
"""Characters per chunk (`chunk.size`)."""

MAX_EXPONENT = 1.15
"""A stage with a larger exponent does not scale."""

HOUR, GB, MB = 3600.0, 1e9, 1e6
SEARCH_PREFIX = "search "
"""Prefix of the search stages, before the retriever's name; the fit stages have the prefix `fit `."""

LLM_JUDGE_STAGE = "judge llm"
EMBED_STAGE, EXACT_SEARCH_STAGE = "embed", "search vectors"
CODEBOOKS_STAGE, INDEX_STAGE = "semantic_codebooks", "index"
KEY_BYTES = 16
"""Bytes per vector in the embedding cache in addition to its numbers."""
DISTRIBUTED_PREFIXES = (
    "chunk", "embed", "fit ", "search ", "judge llm", "triplets",
    "click_evidence", "weight_terms", "associate", "mined_pairs", "semantic_ids",
)  # fmt: skip
"""Name prefixes of stages that Ray distributes over machines (`runner.kind`); others use one process per tenant."""


@dataclass(frozen=True)
class PlannedStage:
    """Resources of a stage at the planned size.

    Attributes:
        job: build, mine or index.
        per: unit of the size.
        size: size over all tenants.
        exponent: exponent of the CPU seconds, with its interval; for search stages, of the seconds per query.
        exponent_assumed: whether the exponent is assumed to be 1.
        cpu_hours: CPU hours over all tenants, with the interval of the fit.
        wall_hours: wall-clock hours on the given machines.
        machines: number of machines used at once.
        memory_gb: memory of one process for one tenant.
        memory_constant: whether memory no longer grew at the largest measured size.
        storage_gb: gigabytes written.
        gpu_hours: GPU hours for encoding.
        tokens: prompt and completion tokens of the judge.
        money: cost of machines, GPUs and tokens.
        extrapolation: size of one tenant relative to the largest measured size.
        limitation: why the stage does not scale; empty if it does.
    """

    job: str
    stage: str
    per: str
    size: float
    exponent: float
    exponent_low: float
    exponent_high: float
    exponent_assumed: bool
    cpu_hours: float
    cpu_hours_low: float
    cpu_hours_high: float
    wall_hours: float
    machines: int
    memory_gb: float
    memory_constant: bool
    storage_gb: float
    gpu_hours: float
    tokens: float
    money: float
    extrapolation: float
    limitation: str


def plan_stages(measured: Measured, hardware: Hardware, documents: float, queries: float) -> list[PlannedStage]:
    """Plan each stage of the three jobs.

    Args:
        measured: measured stage costs.
        hardware: machines, prices and workload.
        documents: number of documents over all tenants.
        queries: number of queries over all tenants, both of the query log and of the search log.

    Raises:
        SettingsError: a retriever was not measured, or encoders are given without GPUs.
    """
    _check(measured, hardware)
    sizes = _sizes(measured, hardware, documents, queries)
    return [_plan_stage(stage, measured, hardware, sizes) for stage in _selected_stages(measured, hardware)]


def totals(rows: list[PlannedStage], hardware: Hardware) -> Row:
    """Totals over all stages, run one after the other."""
    names = ("cpu_hours", "cpu_hours_low", "cpu_hours_high", "wall_hours", "storage_gb", "gpu_hours", "tokens", "money")
    total: Row = {name: sum(getattr(row, name) for row in rows) for name in names}
    total["memory_gb"] = max((row.memory_gb for row in rows), default=0.0)
    month = total["storage_gb"] * hardware.prices.storage_gb_month
    per_machine = 24 * hardware.machines.cores
    return total | {"storage_money_month": month, "machines_for_a_day": ceil(total["cpu_hours"] / per_machine)}


def as_rows(rows: list[PlannedStage]) -> list[Row]:
    """Stages as dictionaries, for JSON."""
    return [asdict(row) for row in rows]


def _check(measured: Measured, hardware: Hardware) -> None:
    retrievers = {
        stage.name.removeprefix(SEARCH_PREFIX) for stage in measured.stages if stage.name.startswith(SEARCH_PREFIX)
    }
    unknown = sorted(set(hardware.work.retrievers) - retrievers)
    if unknown:
        raise SettingsError(
            f"work.retrievers: {', '.join(unknown)} was not measured; measured are: {', '.join(sorted(retrievers))}. "
            "Instead of a hybrid or a reranker name the retrievers that it is made of, and an encoder in encoders"
        )
    if hardware.encoders and hardware.gpus is None:
        raise SettingsError("encoders: no gpus are given to encode on; add the section gpus, or remove encoders")


def _selected_stages(measured: Measured, hardware: Hardware) -> Iterator[StageCosts]:
    """Stages of the selected retrievers and encoders, the LLM judge, and all other stages."""
    names = {f"{kind} {name}" for name in hardware.work.retrievers for kind in ("fit", "search")}
    encoding = {EMBED_STAGE, EXACT_SEARCH_STAGE} if hardware.encoders else set()
    for stage in measured.stages:
        is_retriever = stage.name.startswith(("fit ", SEARCH_PREFIX)) or stage.name == EMBED_STAGE
        is_unused_index = stage.job == "index" and not hardware.encoders
        if stage.name != "judge" and not is_unused_index and (not is_retriever or stage.name in names | encoding):
            yield stage


def _sizes(measured: Measured, hardware: Hardware, documents: float, queries: float) -> Mapping[str, float]:
    work, shares = hardware.work, measured.shares
    n_kept = queries * (work.kept or shares.kept)
    return {
        "chunks": documents * max(work.characters / CHUNK_CHARACTERS, 1.0),
        "raw_queries": queries,
        "queries": n_kept,
        "pairs": n_kept * (work.candidates or shares.candidates),
        "impressions": queries * work.impressions,
    }


def _plan_stage(stage: StageCosts, measured: Measured, hardware: Hardware, sizes: Mapping[str, float]) -> PlannedStage:
    machines, tenants = hardware.machines, hardware.work.tenants
    judged_share = hardware.work.judged if stage.name == LLM_JUDGE_STAGE else 1.0
    size = sizes[stage.per] / tenants * judged_share
    ratios = _ratios(stage, measured, hardware)
    multiplier = (sizes[stage.times] / tenants if stage.times else 1.0) * tenants * sum(ratios) / HOUR / machines.speed
    cpu_hours, (low, high) = stage.growth.cost_at(size) * multiplier, stage.growth.span(size)
    memory_gb = stage.megabytes(size, max(ratios)) * MB / GB
    n_machines, wall_hours = _wall_hours(stage.name, cpu_hours, memory_gb, hardware)
    gpu_hours, gpu_wall_hours = _gpu_hours(hardware, sizes) if stage.name == EMBED_STAGE else (0.0, 0.0)
    tokens, token_price = _tokens(measured, hardware, sizes) if stage.name == LLM_JUDGE_STAGE else (0.0, 0.0)
    wall_hours = max(wall_hours, gpu_wall_hours)
    money = wall_hours * n_machines * machines.price_per_hour + token_price
    money += gpu_hours * hardware.gpus.price_per_hour if hardware.gpus else 0.0
    exponent_low, exponent_high = stage.growth.exponent_span
    return PlannedStage(
        job=stage.job,
        stage=stage.name,
        per=stage.per + (f" × {stage.times}" if stage.times else ""),
        size=size * tenants,
        exponent=stage.growth.exponent,
        exponent_low=exponent_low,
        exponent_high=exponent_high,
        exponent_assumed=stage.growth.assumed,
        cpu_hours=cpu_hours,
        cpu_hours_low=low * multiplier,
        cpu_hours_high=high * multiplier,
        wall_hours=wall_hours,
        machines=n_machines,
        memory_gb=memory_gb,
        memory_constant=stage.has_constant_memory,
        storage_gb=_bytes_written(stage, size, measured, hardware) * tenants / GB,
        gpu_hours=gpu_hours,
        tokens=tokens,
        money=money,
        extrapolation=size / stage.points[-1].size,
        limitation="; ".join(_limitations(stage, memory_gb, hardware)),
    )


def _handles_vectors(stage: StageCosts) -> bool:
    return stage.job == "index" or stage.name in (EMBED_STAGE, EXACT_SEARCH_STAGE)


def _ratios(stage: StageCosts, measured: Measured, hardware: Hardware) -> list[float]:
    """Dimensions relative to the measured ones, per encoder; [1] for stages without vectors."""
    if not _handles_vectors(stage) or not hardware.encoders:
        return [1.0]
    return [encoder.dimensions / measured.vectors.dimensions for encoder in hardware.encoders.values()]


def _bytes_written(stage: StageCosts, size: float, measured: Measured, hardware: Hardware) -> float:
    """Bytes of one tenant: the cache stores full vectors, an index one byte per dimension, codebooks centroids."""
    total_bytes, vectors = stage.bytes(size), measured.vectors
    if not _handles_vectors(stage) or not hardware.encoders:
        return total_bytes
    vector_bytes, row = 0.0, vectors.dimensions * vectors.bytes_per_number + KEY_BYTES
    for encoder in hardware.encoders.values():
        if stage.name == EMBED_STAGE:
            vector_bytes += total_bytes * (encoder.dimensions * encoder.bytes_per_number + KEY_BYTES) / row
        elif stage.name == CODEBOOKS_STAGE:
            vector_bytes += total_bytes * encoder.dimensions / vectors.dimensions
        elif stage.name == INDEX_STAGE:
            vector_bytes += max(total_bytes + size * (encoder.dimensions - vectors.dimensions), 0.0)
        else:
            vector_bytes += total_bytes
    return vector_bytes


def _wall_hours(name: str, hours: float, memory: float, hardware: Hardware) -> tuple[int, float]:
    """Number of machines used at once, and wall-clock hours, with one-core processes limited by memory."""
    machines, tenants = hardware.machines, hardware.work.tenants
    processes = max(min(machines.cores, int(machines.memory_gb / memory)), 1)
    if name.startswith(DISTRIBUTED_PREFIXES):
        return machines.count, hours / (machines.count * processes)
    waves = ceil(tenants / (machines.count * processes))
    return min(machines.count, ceil(tenants / processes)), waves * hours / tenants


def _gpu_hours(hardware: Hardware, sizes: Mapping[str, float]) -> tuple[float, float]:
    texts = sizes["chunks"] + sizes["queries"]
    hours = sum(texts / encoder.texts_per_second for encoder in hardware.encoders.values()) / HOUR
    return hours, hours / hardware.gpus.count if hardware.gpus else 0.0


def _tokens(measured: Measured, hardware: Hardware, sizes: Mapping[str, float]) -> tuple[float, float]:
    """Number of judge tokens, and their price."""
    work, shares, prices = hardware.work, measured.shares, hardware.prices
    n_judged = sizes["pairs"] * work.judged
    prompt = n_judged * (work.prompt_tokens or shares.prompt_tokens)
    completion = n_judged * (work.completion_tokens or shares.completion_tokens)
    return prompt + completion, (prompt * prices.prompt_tokens + completion * prices.completion_tokens) / 1e6


def _limitations(stage: StageCosts, memory: float, hardware: Hardware) -> Iterator[str]:
    low, _ = stage.growth.exponent_span
    if stage.times and stage.growth.exponent > MAX_EXPONENT - 1:
        yield (
            f"each of the {stage.times} scans all {stage.per} of its tenant; search a compressed index, or split the "
            "corpus into more tenants"
        )
    elif stage.growth.exponent > MAX_EXPONENT and low > 1:
        yield f"exponent {stage.growth.exponent:.2f} is above {MAX_EXPONENT}"
    if memory > hardware.machines.memory_gb:
        yield (
            f"one tenant requires {memory:,.0f} GB, a machine has {hardware.machines.memory_gb:,.0f}; split the corpus "
            "into more tenants"
        )
