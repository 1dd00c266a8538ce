"""Cluster sampling: how many clusters, and who stands for whom."""

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.prepare.diversity import n_clusters
from darklode.schemas.settings import CleanSettings
from helpers.cleaning import cleaned
from helpers.runs import read


def test_sampling_keeps_one_of_each_cluster_and_credits_it(run: Run) -> None:
    texts = ["rotate the signing secret", "rotating a signing secret", "rotate signing secrets"]
    texts += ["invite a team member", "invite new team members", "inviting a team member"]
    cleaned(run, texts, clusters=2, per_cluster=1)
    kept = read(run, "cleaned_queries")
    assert [row["n_represented"] for row in kept] == [3, 3]
    ids = {row["query_id"] for row in kept}
    assert {row["represented_by"] for row in read(run, "rejects")} == ids
    topic = {row["query_id"]: str(row["text"])[:5] for row in kept}
    assert all(topic[row["represented_by"]] == str(row["payload"])[:5] for row in read(run, "rejects"))


@pytest.mark.parametrize(("n", "most"), [(1, 1), (100, 100), (1_000, 400), (1_000_000, 10_000)])
def test_clusters_suit_the_log(n: int, most: int) -> None:
    assert 1 <= n_clusters(n, CleanSettings()) <= most
