"""The stage `adaptation_pairs`: one tenant's queries with splits, labels and searched texts, from several runs."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.relations import Relation, materialize
from darklode.pipeline.prepare.split import SPLITS
from darklode.pipeline.train.data.sources import TrainingSource, resolve_tenant
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import ADAPTATION_LABELS, ADAPTATION_QUERIES, ADAPTATION_TEXTS

WRITES = (ADAPTATION_QUERIES.name, ADAPTATION_LABELS.name, ADAPTATION_TEXTS.name)
PAIRS_STAGE = Stage("adaptation_pairs", 4, (), WRITES)

# Labels of texts that are searched. A text outside the index can be neither found nor learned from.
# `content_hash` recognizes copies: a copy of an answer is an answer, too.
KNOWN_LABELS_SQL = """
    SELECT l.*, t.content_hash, q.split FROM labels l JOIN queries q USING (query_id)
    JOIN adaptation_texts t ON t.tenant = $tenant AND t.text_id = l.text_id
"""

# Queries to drop: a train query that nearly duplicates a validation or test query, and a validation query that nearly
# duplicates a test query. Otherwise training would learn what it is evaluated on.
NEAR_HELD_OUT_QUERIES_SQL = """
    WITH split_keys AS (SELECT n, key, CASE split WHEN 'train' THEN 0 WHEN 'validation' THEN 1 ELSE 2 END AS split_rank
                        FROM {keys} JOIN {queries} USING (n)),
    max_ranks AS (SELECT key, max(split_rank) AS max_rank FROM split_keys GROUP BY key)
    SELECT DISTINCT n FROM split_keys JOIN max_ranks USING (key) WHERE split_rank < max_rank
"""

# Queries that nearly duplicate a query of an earlier training, from which a warm start begins.
NEAR_EARLIER_QUERIES_SQL = "SELECT DISTINCT n FROM {keys} SEMI JOIN {earlier_keys} USING (key)"

# Every query with whether it is near a held-out query, and whether it can be used: a train query needs a positive that
# may be trained on, any other query a positive.
QUERY_STATUS_SQL = """
    WITH label_summary AS (
        SELECT query_id, bool_or(relevance > 0) AS has_positive,
               bool_or(learned AND split = 'train') AS has_training_positive
        FROM {known_labels} GROUP BY query_id
    )
    SELECT q.* EXCLUDE (tenant), n IN (FROM {near_held_out}) AS is_near_held_out,
           CASE split WHEN 'train' THEN coalesce(has_training_positive, false)
                      ELSE coalesce(has_positive, false) END AS is_usable
    FROM numbered_queries q LEFT JOIN label_summary USING (query_id)
"""

KEPT_QUERIES_SQL = """
    WITH kept AS (FROM {query_status} WHERE is_usable AND NOT is_near_held_out),
    training_answers AS (SELECT DISTINCT content_hash FROM {known_labels} SEMI JOIN kept USING (query_id)
                         WHERE learned AND split = 'train'),
    sharing AS (SELECT DISTINCT query_id FROM {known_labels} SEMI JOIN training_answers USING (content_hash)
                WHERE relevance > 0)
    SELECT CAST($tenant AS VARCHAR) AS tenant, query_id, index, text, "group", split, kind,
           sharing.query_id IS NOT NULL OR (split <> 'train' AND n IN (FROM {near_earlier})) AS shares_positive
    FROM kept LEFT JOIN sharing USING (query_id) ORDER BY query_id
"""

KEPT_LABELS_SQL = """
    SELECT CAST($tenant AS VARCHAR) AS tenant, query_id, text_id, relevance, learned AND split = 'train' AS learned,
           probability, CASE WHEN learned AND split = 'train' THEN
               CASE WHEN $weighted THEN coalesce(probability, 1) ELSE 1 END END AS weight
    FROM {known_labels} SEMI JOIN {kept_queries} USING (query_id) ORDER BY query_id, text_id
"""


def adaptation_pairs(
    sources: Sequence[TrainingSource], output: Output, settings: AdaptSettings, learned: Sequence[str] = ()
) -> None:
    """Collect one tenant's queries, labels and texts; splits are those of the runs.

    A train query that nearly duplicates a validation or test query of any run is dropped, and so is a validation query
    near a test query. A train query stays if one of its positives is trained on, any other query if it has a positive.

    Args:
        sources: the runs; ids of all but the first begin with `run N:`.
        output: `adaptation_queries`, `adaptation_labels` and `adaptation_texts`.
        settings: tenant, sources, and whether the judge's probabilities weight training positives.
        learned: queries that the warm-start model was trained on: held-out queries near them count as sharing a
            positive.

    Raises:
        ArtifactError: there is nothing to train on, several tenants, or a training positive with an invalid
            probability.
    """
    tenant = resolve_tenant(list(sources), settings.tenant)
    output.facts["tenant"] = tenant
    for source in sources:
        for rows in source.texts(tenant):
            output.write("adaptation_texts", searched_texts(rows, source.number))
    queries = pa.concat_tables([_with_index(source.queries(tenant), source.number) for source in sources])
    labels = pa.concat_tables([source.labels(tenant, settings.sources) for source in sources])
    pair_tables = queries, labels, learned
    _write(output.current_tables("adaptation_texts"), output, tenant, pair_tables, settings.targets == "weighted")
    if not output.facts["train"]:
        raise ArtifactError(
            "no query of the runs' train split has a training positive; check adapt.sources and "
            "labels.training_precision, or build with more queries"
        )


def near_held_out_queries(connection: duckdb.DuckDBPyConnection, queries: Relation) -> Relation:
    """Row numbers `n` of queries to drop because they nearly duplicate one of a split further from training.

    Args:
        connection: holds `queries`.
        queries: n, tenant, text and split.
    """
    return materialize(connection, NEAR_HELD_OUT_QUERIES_SQL, keys=near_keys(connection, queries), queries=queries)


def _write(
    texts: Tables,
    output: Output,
    tenant: str,
    pair_tables: tuple[pa.Table, pa.Table, Sequence[str]],
    weighted: bool,
) -> None:
    """Split, filter and write queries and labels, and count the dropped queries.

    The SQL above reads the tables registered here: `queries`, `labels`, and `numbered_queries` (the queries with the
    row number `n` and the tenant, as `near_keys` needs them).

    Args:
        texts: has `adaptation_texts`.
        output: receives the tables and facts.
        tenant: the tenant of all rows.
        pair_tables: queries, labels, and the queries that a warm-start model was trained on.
        weighted: whether the weights of training positives are their probabilities.
    """
    queries, labels, learned = pair_tables
    row_numbers = pa.array(range(queries.num_rows), pa.int64())
    tenant_column = pa.array([tenant] * queries.num_rows, pa.string())
    numbered_queries = queries.append_column("n", row_numbers).append_column("tenant", tenant_column)
    parameters = {"tenant": tenant}
    with texts.connect() as connection:
        for name, rows in (("queries", queries), ("labels", labels), ("numbered_queries", numbered_queries)):
            connection.register(name, rows)
        known_labels = materialize(connection, KNOWN_LABELS_SQL, parameters)
        numbered = Relation("numbered_queries")
        keys = near_keys(connection, numbered)
        near_held_out = materialize(connection, NEAR_HELD_OUT_QUERIES_SQL, keys=keys, queries=numbered)
        connection.register("earlier_queries", _query_table(learned, tenant))
        earlier_keys = near_keys(connection, Relation("earlier_queries"))
        near_earlier = materialize(connection, NEAR_EARLIER_QUERIES_SQL, keys=keys, earlier_keys=earlier_keys)
        query_status = materialize(connection, QUERY_STATUS_SQL, known_labels=known_labels, near_held_out=near_held_out)
        kept_queries = materialize(
            connection,
            KEPT_QUERIES_SQL,
            parameters,
            query_status=query_status,
            known_labels=known_labels,
            near_earlier=near_earlier,
        )
        query_rows = connection.sql(f"FROM {kept_queries} ORDER BY query_id").to_arrow_table()
        kept_labels_sql = KEPT_LABELS_SQL.format(known_labels=known_labels, kept_queries=kept_queries)
        label_rows = connection.sql(kept_labels_sql, params=parameters | {"weighted": weighted}).to_arrow_table()
        counts = connection.sql(
            "SELECT count(*), count(*) FILTER (NOT is_usable), count(*) FILTER (is_usable AND is_near_held_out) "
            f"FROM {query_status}"
        ).fetchall()[0]
    output.write(
        "adaptation_queries", query_rows.select(ADAPTATION_QUERIES.schema.names).cast(ADAPTATION_QUERIES.schema)
    )
    _check_weights(label_rows)
    output.write("adaptation_labels", label_rows.cast(ADAPTATION_LABELS.schema))
    n_queries, n_unlabelled, n_near = map(int, counts)
    dropped = {"nothing to learn or to find": n_unlabelled, "near to a held-out query": n_near}
    dropped = {reason: count for reason, count in dropped.items() if count}
    output.count(FunnelStep("adaptation_pairs", "queries", n_queries, "queries", query_rows.num_rows, dropped))
    for split in SPLITS:
        output.facts[split] = pc.sum(pc.equal(query_rows["split"], split)).as_py() or 0


def _check_weights(labels: pa.Table) -> None:
    """Check that weights are above 0, at most 1.

    Raises:
        ArtifactError: one is not.
    """
    is_valid = pc.and_(pc.greater(labels["weight"], 0), pc.less_equal(labels["weight"], 1))
    first_invalid = pc.index(is_valid, value=False).as_py()  # -1 if there is none; null is not False
    if first_invalid >= 0:
        row = labels.slice(first_invalid, 1).to_pylist()[0]
        raise ArtifactError(
            f"the training positive {row['text_id']!r} of query {row['query_id']!r} has the probability "
            f"{row['probability']:g}; it must be above 0 and at most 1: build the run again"
        )


def _query_table(texts: Sequence[str], tenant: str) -> pa.Table:
    n = pa.array(range(len(texts)), pa.int64())
    return pa.table({"n": n, "tenant": pa.repeat(tenant, len(texts)), "text": pa.array(texts, pa.string())})


def _with_index(rows: pa.Table, number: int) -> pa.Table:
    return rows.append_column("index", pa.array([number] * rows.num_rows, pa.int32()))


def searched_texts(rows: pa.Table, number: int) -> pa.Table:
    """Texts of a run in the columns of `chunks`, as rows of `adaptation_texts`."""
    columns = {name: rows[name] for name in ("tenant", "doc_id", "content_hash")}
    index = pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)
    return ADAPTATION_TEXTS.rows(columns | {"text_id": rows["chunk_id"], "index": index})
