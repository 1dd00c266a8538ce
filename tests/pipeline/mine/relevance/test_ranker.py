"""Tenants opened for the ranker: their documents, what stays open, and what goes when all is done."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.mine.relevance import ranker as opened
from darklode.pipeline.mine.relevance.ranker import OpenTenants, Ranker
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.schemas.tables import CHUNKS
from helpers.runs import put
from helpers.scripted_judge import ScriptedJudge
from helpers.searching import chunks

TEXTS = ["reset password", "api key", "refund invoice", "export webhook"]


@pytest.fixture
def corpus(run: Run) -> Run:
    rows = [(tenant, f"{tenant}{number}", text) for tenant in "abc" for number, text in enumerate(TEXTS)]
    put(run, "chunks", chunks(rows))
    return run


def ranker(judges: Mapping[str, ScriptedJudge] | None = None, names: Sequence[str] = ("bm25",)) -> Ranker:
    judge = ScriptedJudge()

    def judge_for(tenant: TenantChunks) -> ScriptedJudge:
        return judges[tenant.tenant] if judges else judge

    return Ranker(judge_for, {name: own_retrievers()[name] for name in names}, "v1")


def test_a_ranker_is_named_by_its_version() -> None:
    assert ranker().identity == {"version": "v1"}


def test_a_tenant_has_its_retrievers_its_judge_and_its_documents(corpus: Run) -> None:
    with OpenTenants(corpus.tables("chunks"), ranker(names=("bm25", "character"))) as tenants:
        found = tenants.get("b")
        assert found is not None
        assert [one.name for one in found.retrievers] == ["bm25", "character"]
        assert found.doc_ids.to_pylist() == ["b0", "b1", "b2", "b3"]
        assert found.retrievers[0].search(["webhook"], 1).rows.tolist() == [[3]]
        assert tenants.get("b") is found, "it stays open"
        assert tenants.get("nobody") is None


def test_documents_are_numbered_by_id_and_chunks_placed_by_theirs(run: Run) -> None:
    table = chunks([("a", name, text) for name, text in zip(["c9", "c1", "c5"], TEXTS, strict=False)])
    docs = table.schema.get_field_index("doc_id")
    put(run, "chunks", table.set_column(docs, CHUNKS.schema.field("doc_id"), [["z", "y", "z"]]))
    with OpenTenants(run.tables("chunks"), ranker()) as tenants:
        found = tenants.get("a")
        assert found is not None
        documents = found.documents
        assert found.doc_ids.to_pylist() == ["y", "z"]
        assert (documents.document_of_chunk.tolist(), documents.chunk_id_rank.tolist(), documents.n) == (
            [1, 0, 1],
            [2, 0, 1],
            2,
        )


def test_the_tenant_used_last_stays_open_where_memory_is_short(corpus: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "MAX_OPEN_CHUNKS", 2 * len(TEXTS))
    with OpenTenants(corpus.tables("chunks"), ranker()) as tenants:
        first, second = tenants.get("a"), tenants.get("b")
        assert tenants.get("a") is first
        tenants.get("c")
        assert tenants.get("a") is first
        assert tenants.get("b") is not second


def test_judges_are_listed_once_whatever_tenants_share_them(corpus: Run) -> None:
    own = {name: ScriptedJudge(judge_id=name) for name in "abc"}
    for judges, listed in ((None, 1), (own, 3)):
        with OpenTenants(corpus.tables("chunks"), ranker(judges)) as tenants:
            for name in "abcab":
                tenants.get(name)
        assert len(tenants.judges) == listed


def test_indexes_of_corpora_that_are_gone_are_deleted_unless_it_failed(corpus: Run) -> None:
    def indexes() -> set[str]:
        return {path.name for path in (Path(corpus.store.url) / "indexes").iterdir()}

    with OpenTenants(corpus.tables("chunks"), ranker()) as tenants:
        tenants.get("a")
    old = indexes()
    put(corpus, "chunks", chunks([("a", "a0", "something else")]))
    failed = OpenTenants(corpus.tables("chunks"), ranker())
    failed.get("a")
    failed.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert old < indexes()
    with OpenTenants(corpus.tables("chunks"), ranker()) as tenants:
        tenants.get("a")
    assert len(indexes()) == 1
    assert not old & indexes()
