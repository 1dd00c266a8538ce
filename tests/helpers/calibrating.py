"""A pool, people who label it, and a judge that is held against them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.judge.calibration import CALIBRATE, calibrate
from darklode.schemas.judging import JudgeSettings
from helpers.judge_tables import chunks, pool, queries
from helpers.runs import execute, put
from helpers.scripted_judge import Said, Script, ScriptedJudge

QUERIES, CHUNKS = 20, 8

HEAD = "tenant,query_id,chunk_id,relevance"


def likely(pair: Any) -> Said:
    """Probability by chunk, so that c0 to c7 stand for 0.05 to 0.75; relevant from one half."""
    share = 0.05 + 0.1 * int(pair["chunk_id"][1:])
    return {"relevant": share >= 0.5, "probability": share}


def given_run(run: Run, tenants: Sequence[str] = ("a",)) -> Run:
    texts = {f"q{query:02}": f"query {query}" for query in range(QUERIES)}
    pieces = {f"c{chunk}": f"chunk {chunk}" for chunk in range(CHUNKS)}
    pairs = [(query, chunk) for query in texts for chunk in pieces if (query, chunk) != ("q19", "c7")]
    put(run, "queries", pa.concat_tables(queries(tenant, texts) for tenant in tenants))
    put(run, "chunks", pa.concat_tables(chunks(tenant, pieces) for tenant in tenants))
    put(run, "pool", pa.concat_tables(pool(tenant, pairs) for tenant in tenants))
    return run


def full(tenant: str, relevant_from: int, n: int = QUERIES) -> list[str]:
    """Labels of every pair of n queries: relevant from this chunk on."""
    every = [(query, chunk) for query in range(n) for chunk in range(CHUNKS) if (query, chunk) != (19, 7)]
    return [f"{tenant},q{query:02},c{chunk},{int(chunk >= relevant_from)}" for query, chunk in every]


def calibrated(
    run: Run,
    file: Path,
    lines: Sequence[str],
    script: Script = likely,
    settings_class: type[JudgeSettings] = JudgeSettings,
    **settings: Any,
) -> tuple[Manifest, list[ScriptedJudge]]:
    file.write_text("\n".join(lines) + "\n")
    given, judges = settings_class(human_labels=str(file), **settings), []

    def judge_for(_chunks: object) -> ScriptedJudge:
        judges.append(ScriptedJudge(script))
        return judges[-1]

    manifest = execute(
        run,
        CALIBRATE,
        lambda tables, output: calibrate(tables, output, given, judge_for=judge_for, tenant="a", seed=13),
    )
    return manifest, judges
