"""Cluster sampling: how many clusters, and who stands for whom."""

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.prepare.cluster_sampling import n_clusters
from darklode.schemas.settings import CleanSettings
from helpers.cleaning import cleaned
from helpers.runs import read

ALIKE = ["rotate the signing secret", "rotating a signing secret", "rotate signing secrets"]
TEAM = ["invite a team member", "invite new team members", "inviting a team member"]


def test_sampling_keeps_one_of_each_cluster_and_credits_it_with_its_own_words_alone(run: Run) -> None:
    manifest = cleaned(run, [*ALIKE, *TEAM], n_clusters=2, max_per_cluster=1)
    kept = {row["query_id"]: row for row in read(run, "cleaned_queries")}
    assert len(kept) == 2
    gone = read(run, "rejects")
    assert len(gone) == 4
    for row in gone:
        by = kept.get(row["represented_by"])
        assert by is None or (row["payload"] in ALIKE) == (by["text"] in ALIKE)
    new = [row["represented_by"] for row in gone if "new" in str(row["payload"])]
    assert set(new) <= {None}
    assert sum(int(str(row["n_represented"])) for row in kept.values()) == 6 - len(new) - 2 * (not new)
    assert 0 < manifest.facts["mean_distance"] < 1


def test_by_default_one_of_those_that_ask_in_the_same_words_stays(run: Run) -> None:
    cleaned(run, [*ALIKE, *TEAM], max_per_cluster="auto")
    kept = {row["text"]: row["n_represented"] for row in read(run, "cleaned_queries")}
    assert kept == {ALIKE[0]: 3, TEAM[0]: 2, TEAM[1]: 1}


def test_keeping_all_drops_none_and_still_clusters(run: Run) -> None:
    manifest = cleaned(run, [*ALIKE, *TEAM], max_per_cluster=0, n_clusters=2)
    assert len({row["cluster_id"] for row in read(run, "cleaned_queries")}) == 2
    assert len(read(run, "cleaned_queries")) == 6
    assert "mean_distance" not in manifest.facts


def test_a_peer_in_another_cluster_is_credited(run: Run) -> None:
    """Every cluster keeps one query, so that some queries have a kept peer elsewhere or none at all."""
    texts = [
        f"{verb} the {noun} of plan {n}" for verb in ("open", "close") for noun in ("list", "page") for n in range(9)
    ]
    cleaned(run, texts + [f"please {text}" for text in texts], n_clusters=40, max_per_cluster=1)
    kept = {row["query_id"]: str(row["text"]).removeprefix("please ") for row in read(run, "cleaned_queries")}
    for row in read(run, "rejects"):
        named = kept.get(row["represented_by"])
        asked = str(row["payload"]).removeprefix("please ")
        assert named == (asked if asked in kept.values() else None)


@pytest.mark.parametrize(("n", "most"), [(1, 1), (100, 100), (1_000, 400), (1_000_000, 10_000)])
def test_clusters_suit_the_log(n: int, most: int) -> None:
    assert 1 <= n_clusters(n, CleanSettings()) <= most
