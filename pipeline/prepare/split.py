"""Train, validation and test, by query: no cluster of near-duplicates stands on two sides."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.schemas.settings import SplitSettings
from darklode.schemas.tables import QUERIES

SPLIT = Stage("split", 1, ("cleaned_queries",), ("queries",))

SPLITS = np.array(["test", "validation", "train"])


def split(tables: Tables, output: Output, settings: SplitSettings, *, seed: int) -> None:
    """Give every query its split: whole clusters, in seeded random order, fill test, then validation, then train.

    A query's split depends on the queries alone, never on labels: another judge leaves the test set as it is.
    Source: DevRev-Search, A.1 (92 of 383 queries are test); ScalingNote (train to validation 9:1).
    """
    queries = tables.read("cleaned_queries")
    tenants = queries["tenant"].to_numpy(zero_copy_only=False)
    clusters = queries["cluster_id"].to_numpy()
    splits = np.empty(len(clusters), dtype=object)
    for tenant in np.unique(tenants):
        rows = np.flatnonzero(tenants == tenant)
        splits[rows] = assign(clusters[rows], settings, _seed(seed, tenant))
    output.write("queries", QUERIES.rows({name: queries[name] for name in queries.column_names} | {"split": splits}))
    output.count(FunnelStep("split", "queries", len(clusters), "queries", len(clusters)))


def assign(clusters: NDArray[np.int32], settings: SplitSettings, seed: int) -> NDArray[np.str_]:
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
