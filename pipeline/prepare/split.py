"""Train, validation and test, by query: neither a cluster nor two near-duplicates stand on two sides."""

import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.nearness import near_keys
from darklode.pipeline.base.relations import keep
from darklode.schemas.settings import SplitSettings
from darklode.schemas.tables import QUERIES

SPLIT = Stage("split", 3, ("cleaned_queries",), ("queries",))

CLUSTERS = "SELECT dense_rank() OVER (ORDER BY tenant, cluster_id) - 1 AS cluster FROM {given} ORDER BY n"
SHARED = """
    SELECT n, dense_rank() OVER (ORDER BY key) - 1 AS key
    FROM (FROM {keys} QUALIFY count(*) OVER (PARTITION BY key) > 1)
"""

SPLITS = np.array(["test", "validation", "train"])
IN_ORDER = ("train", "validation", "test")
"""As tables are written: a folder a split, so that whoever reads files alone finds it by name."""


def split(tables: Tables, output: Output, settings: SplitSettings, *, seed: int) -> None:
    """Give every query its split: whole clusters, in seeded random order, fill test, then validation, then train.

    Clusters that near-duplicates join (`nearness`) count as one. A query's split depends on the queries alone, never on
    labels: another judge leaves the test set as it is.
    Source: DevRev-Search, A.1 (92 of 383 queries are test); ScalingNote (train to validation 9:1).
    """
    queries = tables.read("cleaned_queries")
    tenants = queries["tenant"].to_numpy(zero_copy_only=False)
    clusters = joined(queries)
    splits = np.empty(len(clusters), dtype=object)
    for tenant in np.unique(tenants):
        rows = np.flatnonzero(tenants == tenant)
        splits[rows] = assign(clusters[rows], settings, _seed(seed, tenant))
    rows = QUERIES.rows({name: queries[name] for name in queries.column_names} | {"split": splits})
    for name in IN_ORDER:
        output.write("queries", rows.filter(pa.array(splits == name)), name)
    output.count(FunnelStep("split", "queries", len(clusters), "queries", len(clusters)))


def joined(queries: pa.Table) -> NDArray[np.int64]:
    """Each query's cluster, numbered over all tenants, where those that hold near-duplicates of one another are one.

    Args:
        queries: rows of tenant, text and cluster_id.

    Returns:
        shape (n_queries,).
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    with scratch() as connection:
        connection.register("cleaned", queries.append_column("n", pa.array(np.arange(queries.num_rows))))
        given = keep(connection, "SELECT n, tenant, cluster_id, text FROM cleaned")
        clusters = connection.sql(CLUSTERS.format(given=given)).fetchnumpy()["cluster"]
        shared = connection.sql(SHARED.format(keys=near_keys(connection, given))).fetchnumpy()
    n_clusters, n_keys = (int(one.max(initial=-1)) + 1 for one in (clusters, shared["key"]))
    edges = clusters[shared["n"]], n_clusters + shared["key"]
    size = n_clusters + n_keys
    graph = coo_matrix((np.ones(len(edges[0]), bool), edges), (size, size))
    _, components = connected_components(graph, directed=False)
    return np.asarray(components[clusters], np.int64)


def assign(clusters: NDArray[np.integer], settings: SplitSettings, seed: int) -> NDArray[np.str_]:
    """The split of each of one tenant's queries, shape of `clusters`.

    Clusters are laid side by side in random order; a cluster belongs where its middle falls, so that shares are met
    as nearly as whole clusters allow and a tenant with a single cluster trains.
    """
    names, inverse, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    ends = np.cumsum(sizes[order])
    middle = np.empty(len(names))
    middle[order] = (ends - sizes[order] / 2) / len(clusters)
    test = settings.test_share
    validation = test + (1 - test) * settings.validation_share
    return SPLITS[np.searchsorted([test, validation], middle, side="right")][inverse]


def _seed(seed: int, tenant: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{tenant}".encode()).digest()[:8], "big")
