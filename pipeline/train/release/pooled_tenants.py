"""The stage `pooled_tenants`: one head on the rows of all tenants, tested on all, for tenants too small for their own.

Runs only if pooling is asked for. The tenants' own heads and verdicts do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables, key_of
from darklode.pipeline.base.types import Doubles, Facts, Floats, Ints, Row
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.evaluate.paired import MIN_CLUSTERS, ResamplingSettings
from darklode.pipeline.train.data.system_names import BASE
from darklode.pipeline.train.release.adapter import ADAPTER_FOLDER, HEAD_FILE, read_record
from darklode.pipeline.train.release.identity import fingerprint, record
from darklode.pipeline.train.release.pooled_evidence import MIN_TENANTS, PooledEvidence, decide_pooled_release
from darklode.pipeline.train.release.verdict import VERDICT_STAGE, read_verdict
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTED_TENANTS
from darklode.schemas.pooled_tables import POOLED_HEAD, POOLED_TENANTS, POOLED_TRIALS

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.fit.pooled_head import TrainingPairs

POOLED_STAGE = Stage(
    "pooled_tenants", 3, (ADAPTED_TENANTS.name,), (POOLED_HEAD.name, POOLED_TRIALS.name, POOLED_TENANTS.name)
)

PAIR_TABLES = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
TEST_TABLES = (*PAIR_TABLES, "test_queries", "test_labels", "evaluation_queries", VERDICT_STAGE.name)

DECIDING_QUERIES_SQL = f"""
    SELECT query_id, "group", value FROM test_queries JOIN evaluation_queries USING (tenant, query_id)
    WHERE NOT shares_positive AND coalesce(kind, 'unseen') = 'unseen' AND measure = 'nDCG@10' AND system = '{BASE}'
    ORDER BY query_id
"""

OpenRun = Callable[[str], Run]
"""Opens a tenant's folder."""


@dataclass(frozen=True)
class _Pool:
    """The tenants of a pool, opened one after another: their texts are not in memory together."""

    tenants: Sequence[str]
    open_run: OpenRun
    base: BaseEncoder
    settings: AdaptSettings

    def task(self, number: int, split: str = "validation") -> Task:
        """A tenant's task; `validation` are the queries of the split, without those that share a training positive."""
        from dataclasses import replace

        from darklode.pipeline.train.data.dataset import QuerySet, Task
        from darklode.pipeline.train.fit.model_selection import without_shared_positives

        tables = self.open_run(self.tenants[number]).tables(*PAIR_TABLES)
        frozen = self.base.open(tables)
        task = Task.from_tables(tables, frozen, same_document=self.settings.allow_same_document_negatives)
        if split != "validation":
            return replace(task, validation=QuerySet.from_tables(tables, frozen, split))
        return without_shared_positives(task)


def train_pooled_head(
    tables: Tables,
    output: Output,
    settings: AdaptSettings,
    base: BaseEncoder,
    chance: ResamplingSettings,
    *,
    open_run: OpenRun,
) -> None:
    """Train a head on all tenants' train queries, with each tenant's offset, and decide for which it is released.

    Settings are selected on the validation queries of all tenants. The test compares each tenant's head with the base
    on its test queries; results that no judge has seen count as not relevant.

    Args:
        tables: `adapted_tenants`.
        output: receives `pooled_head`, `pooled_trials` and `pooled_tenants`.
        settings: negatives and temperature.
        base: the encoder that is adapted.
        chance: number of resamples and sign flips, and seed.
        open_run: opens a tenant's folder.
    """
    rows = tables.read(ADAPTED_TENANTS.name)
    rows = rows.filter(pc.is_valid(rows["shipped"]))
    pool = _Pool(rows["tenant"].to_pylist(), open_run, base, settings)
    n_tenants = len(pool.tenants)
    if n_tenants < MIN_TENANTS:
        output.facts["reason"] = f"pooling needs at least {MIN_TENANTS} tenants, these are {n_tenants}"
        return
    pairs, weight, offset_ridge = _select(pool, output)
    table = pa.array([row.tolist() for row in weight], pa.list_(pa.float32()))
    output.write(POOLED_HEAD.name, POOLED_HEAD.rows({"row": np.arange(len(weight), dtype=np.int32), "weights": table}))
    values, owners = list[Doubles](), list[Ints]()
    for number in range(n_tenants):
        lifts = _test_lifts(pool, number, pairs[number], weight, offset_ridge)
        values.append(lifts)
        owners.append(np.full(len(lifts), number))
        output.progress(number, n_tenants, "test of the pooled head")
    evidence = decide_pooled_release(np.concatenate(values), np.concatenate(owners), n_tenants, chance)
    output.write(POOLED_TENANTS.name, _tenant_rows(rows, evidence, [len(part.query) for part in pairs]))
    output.facts |= {
        "pooled": n_tenants,
        "offset_ridge": None if np.isinf(offset_ridge) else offset_ridge,
        "tenants": evidence.n_tenants,
    }
    unknown = evidence.mean_low is None
    output.facts |= {"mean": None if unknown else evidence.mean, "mean_low": evidence.mean_low}
    output.facts |= {"spread": None if unknown else evidence.spread, "passed": evidence.passed}
    output.count(FunnelStep(POOLED_STAGE.name, "tenants", n_tenants, "pooled heads", int(evidence.released.sum())))


def _select(pool: _Pool, output: Output) -> tuple[list[TrainingPairs], Floats, float]:
    """All tenants' training pairs, the map of the shared head, and the penalty of offsets."""
    from darklode.pipeline.train.fit.moments import Moments
    from darklode.pipeline.train.fit.pooled_head import (
        OFFSET_RIDGES,
        TrainingPairs,
        offset_map,
        shared_maps,
        whitening_maps,
    )

    pairs, n_tenants, temperature = list[TrainingPairs](), len(pool.tenants), pool.settings.temperature
    queries = texts = Moments(0)
    for number in range(n_tenants):
        task = pool.task(number)
        if not number:
            queries, texts = Moments(task.frozen.dimensions), Moments(task.frozen.dimensions)
        queries.add(task.train.vectors)
        texts.add_parts(task.frozen.take, len(task.frozen))
        pairs.append(_training_pairs(task, pool.settings, n_tenants))
        output.progress(number, n_tenants, "rows of the pooled head")
    together = TrainingPairs.concat(pairs)
    candidates = [
        (power, ridge, number, weight)
        for power, start in whitening_maps(queries, texts).items()
        for ridge, number, weight in shared_maps(together, start, temperature)
    ]
    sums, n_queries = _validate(pool, output, [[weight for *_, weight in candidates]] * n_tenants)
    best = int(np.argmax(sums))
    weight = candidates[best][-1]
    offsets = [[offset_map(part, weight, ridge, temperature) for ridge in OFFSET_RIDGES] for part in pairs]
    offset_sums, _ = _validate(pool, output, offsets)
    trials = [
        {
            "power": power,
            "ridge": ridge,
            "round": number,
            "offset_ridge": None,
            "validation": total,
            "queries": n_queries,
        }
        for (power, ridge, number, _), total in zip(candidates, sums / max(n_queries, 1), strict=True)
    ]
    power, ridge, number, _ = candidates[best]
    trials += [
        {"power": power, "ridge": ridge, "round": number, "offset_ridge": None if np.isinf(offset) else offset}
        | {"validation": total, "queries": n_queries}
        for offset, total in zip(OFFSET_RIDGES, offset_sums / max(n_queries, 1), strict=True)
        if np.isfinite(offset)
    ]
    output.write(POOLED_TRIALS.name, pa.Table.from_pylist(trials, schema=POOLED_TRIALS.schema))
    return pairs, weight, OFFSET_RIDGES[int(np.argmax(offset_sums))]


def _validate(pool: _Pool, output: Output, weights: Sequence[Sequence[Floats]]) -> tuple[Doubles, int]:
    """Sum of nDCG@10 over all tenants' validation queries for each candidate, and the number of these queries.

    Args:
        pool: the tenants.
        output: receives progress.
        weights: each tenant's candidates.
    """
    from darklode.pipeline.train.fit.whitening import whiten

    sums, n_queries = np.zeros(len(weights[0])), 0
    for number, candidates in enumerate(weights):
        task = pool.task(number)
        queries, n = task.validation, len(task.validation)
        if n:
            sums += [n * queries.ndcg(task.frozen, whiten(queries.vectors, weight)) for weight in candidates]
        n_queries += n
        output.progress(number, len(weights), "validation of the pooled head")
    return sums, n_queries


def _training_pairs(task: Task, settings: AdaptSettings, n_tenants: int) -> TrainingPairs:
    """A tenant's pairs with the hardest negatives of the base vectors; of many queries some, evenly spaced."""
    from darklode.pipeline.train.data.negatives import mine_negatives
    from darklode.pipeline.train.fit.pooled_head import MAX_POOLED_QUERIES, MAX_QUERIES, TrainingPairs

    max_queries = max(1, min(MAX_QUERIES, MAX_POOLED_QUERIES // n_tenants))
    if len(task.train) > max_queries:
        task = task.with_queries(np.linspace(0, len(task.train) - 1, max_queries).astype(np.int64))
    negatives = mine_negatives(task, task.train.vectors, settings).positions[:, : settings.negatives_per_step]
    positions = np.column_stack([task.pair_position, negatives])
    vectors = task.frozen.take(np.maximum(positions, 0).reshape(-1)).reshape(*positions.shape, -1)
    return TrainingPairs(task.train.vectors, task.pair_query, vectors, positions >= 0)


def _test_lifts(pool: _Pool, number: int, pairs: TrainingPairs, weight: Floats, offset_ridge: float) -> Doubles:
    """Mean difference in nDCG@10 to the base in each of a tenant's deciding test clusters, shape (n_clusters,)."""
    from darklode.pipeline.train.data.dataset import DEPTH, MEASURE
    from darklode.pipeline.train.fit.pooled_head import offset_map
    from darklode.pipeline.train.fit.whitening import whiten

    tables = pool.open_run(pool.tenants[number]).tables(*TEST_TABLES)
    deciding = tables.sql(DECIDING_QUERIES_SQL)
    if not deciding.num_rows:
        return np.zeros(0)
    task = pool.task(number, "test")
    ids = deciding["query_id"].combine_chunks()
    queries = task.validation.take(pc.index_in(ids, task.validation.ids).to_numpy().astype(np.int64))
    own = offset_map(pairs, weight, offset_ridge, pool.settings.temperature)
    ranking = queries.ranking(task.frozen, whiten(queries.vectors, own), DEPTH + queries.max_uncertain)
    values = compute_measures([ranking], tables.read("test_labels"), ids.to_pylist(), [MEASURE])[:, 0]
    cluster = deciding["group"].combine_chunks().dictionary_encode().indices.to_numpy()
    lifts = np.bincount(cluster, values - deciding["value"].to_numpy()) / np.bincount(cluster)
    return np.asarray(lifts, np.float64)


def _tenant_rows(tenants: pa.Table, evidence: PooledEvidence, n_pairs: Sequence[int]) -> pa.Table:
    columns: dict[str, Any] = {name: tenants[name] for name in ("tenant", "folder")}
    is_own = pc.equal(tenants["shipped"], "adapted").to_numpy(zero_copy_only=False)
    columns |= {"released": evidence.released & ~is_own, "pairs": pa.array(n_pairs, pa.int64())}
    columns |= {"clusters": evidence.clusters.astype(np.int64)}
    for name in ("difference", "expected", "low", "loss_probability"):
        columns[name] = pa.array(getattr(evidence, name), pa.float64(), from_pandas=True)  # NaN: unknown
    return POOLED_TENANTS.rows(columns)


def format_evidence(row: Row, facts: Facts) -> str:
    """Why the pooled head is released for a tenant, in one sentence.

    Args:
        row: a row of `pooled_tenants`.
        facts: facts of the stage.
    """
    own = f"{row['clusters']} test clusters"
    own += "" if row["difference"] is None else f", {row['difference']:+.3f}"
    own += ", too few to decide alone" if row["clusters"] < MIN_CLUSTERS else ""
    return (
        f"released on the evidence of {facts['tenants']:,} tenants: nDCG@10 {facts['mean']:+.3f} on average (at least "
        f"{facts['mean_low']:+.3f}), standard deviation {facts['spread']:.3f} between tenants; own evidence: {own}; "
        f"expected lift {row['expected']:+.3f}, probability of no lift {row['loss_probability']:.1%}"
    )


def save_pooled_heads(run: Run, base: BaseEncoder, settings: AdaptSettings, open_run: OpenRun) -> None:
    """Write the head and the record of each tenant that the pooled head is released for; skips up-to-date folders.

    A record names how many tenants were pooled, and not which: it belongs to one tenant.

    Args:
        run: the folder of all tenants, with a complete stage.
        base: the encoder that was adapted.
        settings: as for `train_pooled_head`.
        open_run: opens a tenant's folder.
    """
    from darklode.pipeline.train.fit.heads import head_bytes
    from darklode.pipeline.train.fit.pooled_head import offset_map

    manifest, tables = run.manifest(POOLED_STAGE), run.tables(*POOLED_STAGE.writes)
    assert manifest is not None
    rows = [row for row in tables.read(POOLED_TENANTS.name).to_pylist() if row["released"]]
    pool, mark = _Pool([row["tenant"] for row in rows], open_run, base, settings), tables.content(POOLED_HEAD.name)
    weight = np.array(tables.read(POOLED_HEAD.name).sort_by("row")["weights"].to_pylist(), np.float32)
    ridge = np.inf if manifest.facts.get("offset_ridge") is None else manifest.facts["offset_ridge"]
    for number, row in enumerate(rows):
        tenant_run = open_run(row["tenant"])
        pooled = {name: row[name] for name in ("clusters", "difference", "expected", "low", "loss_probability")}
        pooled |= {"tenants": manifest.facts["tenants"], "head": key_of(mark, ridge)}
        if read_record(tenant_run.store).get("pooled") == pooled:
            continue
        pairs = _training_pairs(pool.task(number), settings, manifest.facts["pooled"])
        own = offset_map(pairs, weight, ridge, settings.temperature)
        tenant_run.store.delete_folder(ADAPTER_FOLDER)
        layers = [(own, np.zeros(len(own), np.float32))]
        tenant_run.store.write(HEAD_FILE, head_bytes(layers, base.identity["encoder"]))
        verdict = read_verdict(tenant_run.tables(VERDICT_STAGE.name))
        verdict |= {"shipped": "pooled", "reason": format_evidence(row, manifest.facts)}
        verdict |= {"difference": row["difference"], "low": None, "high": None}
        record(tenant_run, base, base.encoder, verdict, fingerprint(tenant_run.tables()), "head", pooled)  # type: ignore[arg-type]


def delete_pooled_head(run: Run) -> None:
    """Delete the pooled head of an earlier run; the tenants' folders get their own heads back with their stage."""
    if run.manifest(POOLED_STAGE) is not None:
        run.forget(POOLED_STAGE)
        for table in POOLED_STAGE.writes:
            run.store.delete_folder(f"tables/{table}")


def pooled_card(run: Run, rows: Mapping[str, int]) -> bytes:
    """A page about the tenants' adapters: how many, on what evidence, and whose rows were learned from.

    Args:
        run: the folder of all tenants.
        rows: number of tenants by released encoder.
    """
    manifest = run.manifest(POOLED_STAGE)
    assert manifest is not None
    counts = ", ".join(f"{count:,} {name}" for name, count in rows.items())
    lines = ["# Adapters of tenants", f"Released: {counts}."]
    facts = manifest.facts
    if facts.get("mean_low") is None:
        lines.append(f"No pooled head is released: {facts.get('reason', 'too few tenants have test queries')}.")
    else:
        lift = (
            f"{facts['mean']:+.3f} on average over {facts['tenants']:,} tenants (at least {facts['mean_low']:+.3f}; "
            f"standard deviation between tenants {facts['spread']:.3f})"
        )
        lines.append(
            f"The pooled head changes nDCG@10 by {lift}. Its evidence is that of all tenants: a tenant with few test "
            "clusters may differ from them."
            if facts["passed"]
            else f"No pooled head is released: its nDCG@10 against the base is {lift}, which is no gain by the release "
            "test."
        )
    lines.append(
        "**Pooled:** the shared head was trained on queries and labels of all these tenants (`--pool-tenants`). Its "
        "weights depend on every tenant's rows; no text, query or name of another tenant is in a tenant's folder."
    )
    return ("\n\n".join(lines) + "\n").encode()
