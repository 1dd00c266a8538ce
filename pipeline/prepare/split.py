"""The stage `split`: assign queries to train, validation and test; clusters and near-duplicates never cross splits."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.relations import materialize
from darklode.schemas.settings import SplitSettings
from darklode.schemas.tables import QUERIES

SPLIT = Stage("split", 3, ("cleaned_queries",), ("queries",))

CLUSTER_NUMBERS_SQL = "SELECT dense_rank() OVER (ORDER BY tenant, cluster_id) - 1 AS cluster FROM {queries} ORDER BY n"
SHARED_KEYS_SQL = """
    SELECT n, dense_rank() OVER (ORDER BY key) - 1 AS key
    FROM (FROM {keys} QUALIFY count(*) OVER (PARTITION BY key) > 1)
"""

SPLITS_TO_FILL = np.array(["test", "validation", "train"])
"""Order in which splits are filled with clusters; see `assign`."""

SPLITS = ("train", "validation", "test")
"""Order in which splits are written: one folder per split, so that readers of files find them by name."""


GENERATED_TABLE = "generated_queries"
ACCEPTED_QUERIES_SQL = (
    "FROM queries SEMI JOIN (FROM generated_queries WHERE kept) USING (tenant, query_id) ORDER BY ALL"
)

# Generated queries that are near-duplicates of no held-out query. `n` numbers the generated queries from 0, then the
# held-out ones, so a number from `$n_generated` on is held out.
ELIGIBLE_QUERIES_SQL = """
    SELECT g.* FROM generated g SEMI JOIN query_tenants USING (tenant)
    WHERE n NOT IN (SELECT g.n FROM {keys} g JOIN {keys} h USING (key) WHERE g.n < $n_generated AND h.n >= $n_generated)
    ORDER BY tenant, query_id
"""


def split(tables: Tables, output: Output, settings: SplitSettings, *, seed: int) -> None:
    """Assign each query to a split: whole clusters, in seeded random order, fill test, then validation, then train.

    Clusters connected by near-duplicates count as one. The split depends on the queries only, never on labels, so the
    test set stays the same with another judge.
    Sources: DevRev-Search, A.1 (92 of 383 queries are test); ScalingNote (train to validation 9:1).

    Args:
        tables: holds `cleaned_queries`; with `judgments`, queries keep the splits of their source (see
            `assign_with_source_splits`).
        output: receives `queries`.
        settings: shares of the splits, and `generated_queries`, a folder of `darklode generate`. Generated queries are
            added to train, each as a cluster of its own. They are dropped if they are near-duplicates of a held-out
            query, or if their tenant has no queries here.
        seed: random seed of the order of clusters.

    Raises:
        ArtifactError: the folder has no generated queries.
    """
    queries = tables.read("cleaned_queries")
    tenants = queries["tenant"].to_numpy(zero_copy_only=False)
    clusters = connected_components(queries)
    splits = np.empty(len(clusters), dtype=object)
    source_splits = _source_splits(tables, queries)
    for tenant in np.unique(tenants):
        rows = np.flatnonzero(tenants == tenant)
        splits[rows] = assign_with_source_splits(
            clusters[rows], source_splits[rows], settings, _tenant_seed(seed, tenant)
        )
    rows = QUERIES.rows({name: queries[name] for name in queries.column_names} | {"split": splits})
    generated_queries = _read_generated(settings.generated_queries) if settings.generated_queries else rows.slice(0, 0)
    added_queries = _training_queries(rows, generated_queries) if generated_queries.num_rows else generated_queries
    for name in SPLITS:
        split_rows = rows.filter(pa.array(splits == name))
        output.write("queries", pa.concat_tables([split_rows, added_queries]) if name == "train" else split_rows, name)
    n_in = len(clusters) + generated_queries.num_rows
    n_dropped = n_in - len(clusters) - added_queries.num_rows
    dropped = {"generated, and near to a held-out query or of another tenant": n_dropped} if n_dropped else {}
    output.count(FunnelStep("split", "queries", n_in, "queries", len(clusters) + added_queries.num_rows, dropped))


def _read_generated(folder: str) -> pa.Table:
    """Accepted generated queries of a run of `darklode generate`."""
    return Run(folder).tables(QUERIES.name, GENERATED_TABLE).sql(ACCEPTED_QUERIES_SQL).cast(QUERIES.schema)


def _training_queries(query_rows: pa.Table, generated: pa.Table) -> pa.Table:
    """Generated queries that may be trained on, with cluster ids above those of their tenants."""
    held_out = query_rows.filter(pc.not_equal(query_rows["split"], "train"))
    texts = pa.concat_tables([generated.select(["tenant", "text"]), held_out.select(["tenant", "text"])])
    numbered = generated.append_column("n", pa.array(np.arange(generated.num_rows)))
    with scratch() as connection:
        connection.register("texts", texts.append_column("n", pa.array(np.arange(texts.num_rows))))
        connection.register("generated", numbered)
        connection.register("query_tenants", query_rows.select(["tenant"]))
        keys = near_keys(connection, materialize(connection, "FROM texts"))
        query = ELIGIBLE_QUERIES_SQL.format(keys=keys)
        eligible = connection.sql(query, params={"n_generated": generated.num_rows}).to_arrow_table()
    maxima = query_rows.group_by("tenant").aggregate([("cluster_id", "max")])
    last_cluster = dict(zip(maxima["tenant"].to_pylist(), maxima["cluster_id_max"].to_pylist(), strict=True))
    offsets = np.array([last_cluster[tenant] for tenant in eligible["tenant"].to_pylist()], np.int64)
    clusters = pa.array(offsets + 1 + np.arange(eligible.num_rows))
    columns = {name: eligible[name] for name in QUERIES.schema.names}
    return QUERIES.rows(columns | {"cluster_id": clusters, "split": pa.repeat("train", eligible.num_rows)})


def connected_components(queries: pa.Table) -> NDArray[np.int64]:
    """Component number of each query, shape (n_queries,), unique over all tenants.

    Two clusters are in one component if they are connected by near-duplicate queries. Computed as the connected
    components of a bipartite graph of clusters and near-duplicate keys.

    Args:
        queries: queries with tenant, text and cluster_id.
    """
    from scipy.sparse import coo_matrix, csgraph

    with scratch() as connection:
        connection.register("cleaned_queries", queries.append_column("n", pa.array(np.arange(queries.num_rows))))
        query_keys = materialize(connection, "SELECT n, tenant, cluster_id, text FROM cleaned_queries")
        clusters = connection.sql(CLUSTER_NUMBERS_SQL.format(queries=query_keys)).fetchnumpy()["cluster"]
        shared = connection.sql(SHARED_KEYS_SQL.format(keys=near_keys(connection, query_keys))).fetchnumpy()
    n_clusters, n_keys = (int(column.max(initial=-1)) + 1 for column in (clusters, shared["key"]))
    edges = clusters[shared["n"]], n_clusters + shared["key"]
    size = n_clusters + n_keys
    graph = coo_matrix((np.ones(len(edges[0]), bool), edges), (size, size))
    _, components = csgraph.connected_components(graph, directed=False)
    return np.asarray(components[clusters], np.int64)


def assign(clusters: NDArray[np.integer], settings: SplitSettings, seed: int) -> NDArray[np.str_]:
    """Split of each query of one tenant, shape of `clusters`.

    Clusters are laid out on a line of length 1 in random order; the midpoint of each decides its split. So shares are
    met as closely as whole clusters allow, and a tenant with a single cluster is in train.
    """
    cluster_ids, cluster_index, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(cluster_ids))
    ends = np.cumsum(sizes[order])
    midpoints = np.empty(len(cluster_ids))
    midpoints[order] = (ends - sizes[order] / 2) / len(clusters)
    test_end = settings.test_share
    validation_end = test_end + (1 - test_end) * settings.validation_share
    return SPLITS_TO_FILL[np.searchsorted([test_end, validation_end], midpoints, side="right")][cluster_index]


SPLIT_DTYPE = "<U10"
"""As long as `validation`."""

SOURCE_SPLITS_SQL = """
    SELECT tenant, query_id, any_value(split) AS split FROM judgments WHERE split IS NOT NULL GROUP BY tenant, query_id
"""


def _source_splits(tables: Tables, queries: pa.Table) -> NDArray[np.str_]:
    """Split of each query by its judgments, shape (n_queries,); empty if they name none."""
    if "judgments" not in tables:
        return np.full(queries.num_rows, "", SPLIT_DTYPE)
    rows = queries.select(["tenant", "query_id"]).append_column("n", pa.array(np.arange(queries.num_rows)))
    joined = rows.join(tables.sql(SOURCE_SPLITS_SQL), ["tenant", "query_id"]).sort_by("n")
    return np.array(pc.fill_null(joined["split"], "").to_pylist(), SPLIT_DTYPE)


def assign_with_source_splits(
    clusters: NDArray[np.integer], source_splits: NDArray[np.str_], settings: SplitSettings, seed: int
) -> NDArray[np.str_]:
    """Split of each query of one tenant, shape of `clusters`, where a source names splits of some.

    Test and validation queries of the source stay so; queries without a split follow them where they share a cluster.
    All others, training queries of the source included, are divided by clusters into the splits that the source does
    not have.
    """
    splits = source_splits.copy()
    for name in ("validation", "test"):  # test wins a cluster with both
        splits[np.isin(clusters, clusters[source_splits == name]) & (source_splits == "")] = name
    is_open = (splits == "") | (splits == "train")
    shares = {f"{name}_share": 0.0 for name in ("validation", "test") if np.any(source_splits == name)}
    if is_open.any():
        splits[is_open] = assign(clusters[is_open], settings.model_copy(update=shares), seed)
    return splits


def _tenant_seed(seed: int, tenant: str) -> int:
    """A seed per tenant, so that adding a tenant leaves the splits of the others unchanged."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{tenant}".encode()).digest()[:8], "big")
