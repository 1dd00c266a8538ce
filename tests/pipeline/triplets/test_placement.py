"""Triplets of runs that an earlier version wrote to the folder of another tenant or source are found."""

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.triplets.placement import has_old_layout, misplaced_triplets
from helpers.mined_tables import give_pairs, publish_triplets
from helpers.old_triplets import to_old_layout

TENANTS = ("acme", "späti/ü")


def tenant_run(run: Run) -> Run:
    pairs = [
        {"tenant": tenant, "source": source, "query_id": f"q{n}", "positive_id": "d"}
        for tenant in TENANTS
        for source in ("click_one_hop", "click_multi_hop")
        for n in range(3)
    ]
    docs = [{"tenant": tenant, "doc_id": "d", "text": tenant} for tenant in TENANTS]
    give_pairs(run, pairs, docs, {f"q{n}": "x" for n in range(3)})
    publish_triplets(run)
    return run


def test_what_this_version_writes_lies_where_it_belongs(run: Run) -> None:
    tenant_run(run)
    assert not has_old_layout(run)
    assert list(misplaced_triplets(run)) == []


@pytest.mark.parametrize(
    ("wrong", "rows"),
    [
        ({}, {}),
        (dict(zip(TENANTS, reversed(TENANTS), strict=True)), dict.fromkeys(TENANTS, 6)),
        ({"click_one_hop": "click_multi_hop", "click_multi_hop": "click_one_hop"}, dict.fromkeys(TENANTS, 6)),
    ],
    ids=["right", "tenants swapped", "sources swapped"],
)
def test_an_old_run_is_told_by_the_ids_of_its_triplets(run: Run, wrong: dict[str, str], rows: dict[str, int]) -> None:
    to_old_layout(tenant_run(run), wrong=wrong)
    assert has_old_layout(run)
    found = list(misplaced_triplets(run))
    assert sum(file.misplaced for file in found) == sum(rows.values())
    assert all(file.misplaced == file.rows == 3 for file in found)
    with pytest.raises(ArtifactError, match=r"the table triplets of .* was written by another version of Darklode"):
        run.tables("triplets").read("triplets")
