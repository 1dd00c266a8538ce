"""Searches of one tenant in an index of several: only its texts, as an exact search of them would find."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.index import search
from darklode.pipeline.index.probes import tenants_of
from darklode.pipeline.index.searcher import VectorSearcher
from darklode.schemas.serving import INDEXES
from helpers.indexed import clustered
from helpers.tenant_vectors import build, make_source, update

pytest.importorskip("faiss", reason="faiss-cpu is not installed")

SIZES = (900, 580, 20)


def settings_of(kind: str, **more: object) -> object:
    return INDEXES.load(kind)(tuning_queries=20, **({"code_size": 16} if kind.startswith("ivf") else {}), **more)


def exact_lists(own: np.ndarray, queries: np.ndarray, depth: int) -> np.ndarray:
    return np.argsort(-(queries @ own.T), axis=1, kind="stable")[:, :depth]


@pytest.mark.parametrize("max_exact", [10, 20_000])
@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivfpq", "ivfpq_fastscan"])
def test_a_search_finds_its_tenants_texts_only(
    kind: str, max_exact: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a tenant with fewer texts than asked for; and again after texts left and came."""
    monkeypatch.setattr(search, "MAX_EXACT_TEXTS", max_exact)
    source, settings = make_source(tmp_path, SIZES), settings_of(kind)
    folder = build(source, tmp_path / "index", settings)
    source.vectors["a"] = source.vectors["a"][:700]
    source.vectors["b"] = np.concatenate([source.vectors["b"], clustered(50, seed=5)])
    queries = clustered(40, seed=1)
    for round_ in ("built", "updated"):
        if round_ == "updated":
            update(source, folder, settings)
        with VectorSearcher(folder) as searcher:
            for tenant, own in source.vectors.items():
                count = SIZES["abc".index(tenant)] if round_ == "built" else len(own)
                results = searcher.search(queries, 30, tenant=tenant)
                found = results.rows >= 0
                assert {*pc.take(searcher.texts["tenant"], results.rows[found]).to_pylist()} == {tenant}
                assert (found.sum(axis=1) == min(30, count)).all()
                if round_ == "updated":
                    ids = [{int(name[1:]) for name in results.ids(query)} for query in range(len(queries))]
                    exact = exact_lists(own, queries, 30)
                    recall = np.mean(
                        [len(own_ids & {*row}) / len(row) for own_ids, row in zip(ids, exact, strict=True)]
                    )
                    assert recall > (0.97 if max_exact > 10 or kind in {"flat", "hnsw"} else 0.9)


def test_each_query_is_searched_for_its_own_tenant(tmp_path: Path) -> None:
    source = make_source(tmp_path, SIZES)
    folder = build(source, tmp_path / "index", settings_of("ivfpq"))
    queries = clustered(6, seed=1)
    with VectorSearcher(folder) as searcher:
        together = searcher.search_by_tenant(queries, ["a", "b", "c", "a", "b", "c"], 5)
        for query, tenant in enumerate("abcabc"):
            alone = searcher.search(queries[query : query + 1], 5, tenant=tenant)
            assert alone.rows.tolist() == together.rows[query : query + 1].tolist()


def test_a_tenant_is_required_and_must_be_known(tmp_path: Path) -> None:
    folder = build(make_source(tmp_path, (40, 30)), tmp_path / "index", settings_of("flat"))
    with VectorSearcher(folder) as searcher:
        assert searcher.tenants == ("a", "b")
        with pytest.raises(DoesNotFit, match="a tenant is required; choose from a, b"):
            searcher.search(clustered(1))
        with pytest.raises(DoesNotFit, match="there is no tenant z; choose from a, b"):
            searcher.search(clustered(1), tenant="z")


def test_another_tenants_text_is_never_returned(tmp_path: Path) -> None:
    """Even if the searched numbers were wrong."""
    folder = build(make_source(tmp_path, (40, 30)), tmp_path / "index", settings_of("flat"))
    with VectorSearcher(folder) as searcher:
        tenants = searcher._finder.tenants
        object.__setattr__(tenants["a"], "numbers", tenants["b"].numbers)
        with pytest.raises(ArtifactError, match="found another tenant's text"):
            searcher.search(clustered(1), tenant="a")


def test_recall_is_measured_among_the_texts_of_each_querys_tenant(tmp_path: Path) -> None:
    """Recall of an exact index is 1, whatever the tenants' sizes."""
    folder = build(make_source(tmp_path, SIZES), tmp_path / "index", settings_of("flat"))
    with VectorSearcher(folder) as searcher:
        assert {row["recall"] for row in searcher.facts["recall"]["base"].values()} == {1.0}


def test_an_update_without_a_tenant_forgets_its_queries(tmp_path: Path) -> None:
    """Of one whose texts have all left, no query is measured, and no list names a text."""
    source, settings = make_source(tmp_path, SIZES), settings_of("ivfpq")
    folder = build(source, tmp_path / "index", settings)
    before = Run(folder).tables("index_queries").read("index_queries")
    del source.vectors["a"]
    source.vectors["c"] = source.vectors["c"][1:]
    update(source, folder, settings)
    tables = Run(folder).tables()
    rows, texts = tables.read("index_queries"), tables.read("indexed_texts")
    remaining = before.filter(pc.not_equal(before["tenant"], "a"))
    assert {*texts["tenant"].to_pylist()} == {"b", "c"} == {*rows["tenant"].to_pylist()}
    assert 0 < rows.num_rows == remaining.num_rows < before.num_rows
    assert rows["query"].to_pylist() == list(range(rows.num_rows))
    assert rows["vector"].equals(remaining["vector"])
    lists, tenants = tables.read("index_probes"), tenants_of(rows, "base")
    tenant_of_text = dict(zip(texts["number"].to_pylist(), texts["tenant"].to_pylist(), strict=True))
    listed = lists.filter(pc.less_equal(lists["rank"], 100))
    assert {*lists["query"].to_pylist()} == {*range(rows.num_rows)}
    assert all(tenant_of_text[row["number"]] == tenants[row["query"]] for row in listed.to_pylist())
    with VectorSearcher(folder) as searcher:
        assert searcher.tenants == ("b", "c")
        assert all(row["recall"] > 0.9 for row in searcher.facts["recall"]["base"].values())
        with pytest.raises(DoesNotFit, match="no tenant a"):
            searcher.search(clustered(1), tenant="a")


def test_an_update_that_leaves_no_known_tenant_is_refused(tmp_path: Path) -> None:
    source, settings = make_source(tmp_path, (40, 30)), settings_of("flat")
    folder = build(source, tmp_path / "index", settings)
    source.vectors = {"z": clustered(20, seed=3)}
    with pytest.raises(ArtifactError, match="none of the index's tenants has texts any more: build it again"):
        update(source, folder, settings)
