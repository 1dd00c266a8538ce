"""The stage `swap_texts`: the texts that both encoders embed, and how often users meet them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.types import Doubles
from darklode.pipeline.model_swap.encoder_pair import SPLIT_SQL, EncoderPair, tenant_of
from darklode.pipeline.model_swap.selection import SAMPLE_SIZES
from darklode.pipeline.model_swap.vectors import search
from darklode.schemas.model_swap_tables import SWAP_TEXTS

SAMPLE_STAGE = Stage(
    "swap_texts", 1, ("tower_queries", "adaptation_texts", "adaptation_labels", "adaptation_queries"), ("swap_texts",)
)

# Distinct texts. Labelled answers come first, as far as they fill half of the sample, so that labelled queries can be
# measured; the others follow at random. Half of the sample, at random, is for fitting maps.
SAMPLE_SQL = """
    WITH distinct_texts AS (
        SELECT content_hash, min(text_id) AS text_id FROM adaptation_texts GROUP BY content_hash
    ), answers AS (
        SELECT DISTINCT content_hash FROM adaptation_labels l JOIN adaptation_texts USING (tenant, text_id)
        SEMI JOIN (FROM adaptation_queries WHERE split = 'test') USING (tenant, query_id) WHERE relevance > 0
    ), shuffled AS (
        SELECT text_id, content_hash, a.content_hash IS NOT NULL AS is_answer,
               row_number() OVER (PARTITION BY a.content_hash IS NOT NULL
                                  ORDER BY md5(concat($seed, ' ', content_hash))) AS place,
               md5(concat($seed, ' fit ', content_hash)) AS fit_key
        FROM distinct_texts LEFT JOIN answers a USING (content_hash)
    ), sampled AS (
        FROM shuffled ORDER BY NOT (is_answer AND place <= $size // 2), place, text_id LIMIT $size
    ), ordered AS (SELECT *, row_number() OVER (ORDER BY fit_key) - 1 AS fit_place FROM sampled)
    SELECT text_id, content_hash,
           CASE WHEN fit_place < least($max_fitted, (SELECT count(*) FROM sampled) // 2)
                THEN CAST(fit_place AS INTEGER) END AS fit_order
    FROM ordered ORDER BY text_id
"""

# Heat of all copies of a text.
LOG_HEAT_SQL = """
    SELECT content_hash, sum(clicks) + sum(exposures) / (1 + sum(sum(exposures)) OVER ()) AS heat
    FROM click_evidence JOIN texts ON doc_id = text_id WHERE tenant = $tenant GROUP BY content_hash
"""

LOG_TABLE = "click_evidence"

MIN_TEXTS = 100
"""Smallest sample: Recall@100 of fewer texts is 1 by definition."""

HEAT_DEPTH = 10
"""Without a log, a text is as hot as the number of training queries that have it among their first ten."""


def sample_texts(tables: Tables, output: Output, pair: EncoderPair, *, sample: int, seed: int) -> None:
    """Write the texts to embed with both encoders, with their heat.

    Args:
        tables: the tables of `adaptation_pairs`, and `tower_queries`.
        output: receives `swap_texts`; its facts: distinct texts of the index, and where heat comes from.
        pair: the encoders; the old one's vectors of the sample are computed if the heat needs them.
        sample: maximum number of texts.
        seed: seed of the sample.
    """
    tenant = tenant_of(tables)
    parameters = {"size": sample, "seed": str(seed), "max_fitted": max(SAMPLE_SIZES)}
    with tables.connect(SAMPLE_SQL) as connection:
        rows = connection.sql(SAMPLE_SQL, params=parameters).to_arrow_table()
        counted = connection.sql("SELECT count(DISTINCT content_hash) AS n FROM adaptation_texts").fetchall()
    heat, source = _heat(tables, pair, tenant, rows)
    columns = {name: rows[name] for name in rows.column_names} | {"tenant": pa.repeat(tenant, rows.num_rows)}
    output.write(SWAP_TEXTS.name, SWAP_TEXTS.rows(columns | {"heat": heat}))
    output.facts |= {"index texts": int(counted[0][0]), "heat": source}
    n_unsampled = int(counted[0][0]) - rows.num_rows
    dropped = {"not in the sample": n_unsampled} if n_unsampled else {}
    output.count(FunnelStep(SAMPLE_STAGE.name, "distinct texts", int(counted[0][0]), "texts", rows.num_rows, dropped))


def heat_inputs(pair: EncoderPair) -> dict[str, str]:
    """Fingerprints of what heat is read from besides the tables of the stage: the log of a mined run."""
    logs = [source for source in pair.old.sources if source.mined]
    return {f"the log of {log.run.store.url}": log.run.tables(LOG_TABLE).content(LOG_TABLE) for log in logs}


def _heat(tables: Tables, pair: EncoderPair, tenant: str, sampled: pa.Table) -> tuple[Doubles, str]:
    """Heat of each sampled text, and where it comes from."""
    source, text_ids = pair.old.sources[0], sampled["text_id"].to_pylist()
    if source.mined:
        texts = tables.read("adaptation_texts", ["text_id", "content_hash"])
        with source.run.tables(LOG_TABLE).connect(LOG_HEAT_SQL) as connection:
            connection.register("texts", texts)
            rows = connection.sql(LOG_HEAT_SQL, params={"tenant": tenant}).to_arrow_table()
        heat_of = dict(zip(rows["content_hash"].to_pylist(), rows["heat"].to_pylist(), strict=True))
        heat = [heat_of.get(name, 0.0) for name in sampled["content_hash"].to_pylist()]
        return np.array(heat, np.float64), "clicks and exposures of the log"
    queries = pair.old.queries(tables.sql(SPLIT_SQL, ["train"])["query"].to_pylist())
    results = search(queries, pair.documents(tenant, text_ids).old, HEAT_DEPTH)
    counts = np.bincount(results[results >= 0], minlength=len(text_ids))
    return counts.astype(np.float64), "first results of training queries"
