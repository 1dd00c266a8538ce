from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import Digest, TenantChunks, tenants, view
from darklode.schemas.tables import CHUNKS
from helpers.runs import put


def chunks(tenant: str, texts: list[str], **columns: list[str | None]) -> pa.Table:
    n = len(texts)
    ids = [f"c{number}" for number in range(n)]
    fixed = {"tenant": [tenant] * n, "chunk_id": ids, "doc_id": ids, "text": texts, "content_hash": texts}
    offsets = {"position": [0] * n, "start": [0] * n, "end": [len(text) for text in texts]}
    return CHUNKS.rows(fixed | offsets | columns)


def stored(run: Run, *tables: pa.Table) -> Run:
    put(run, "chunks", pa.concat_tables(tables))
    return run


def test_a_chunk_is_seen_as_its_title_heading_and_text_without_what_is_missing() -> None:
    rows = chunks("a", ["x", "y", "z"], title=["T", None, None], heading=["H", "H", None])
    assert view(rows).to_pylist() == ["T\nH\nx", "H\ny", "z"]


def test_tenants_are_sorted_and_named_once(run: Run) -> None:
    stored(run, chunks("b", ["x"]), chunks("a", ["y"]), chunks("b", ["z"]))
    assert tenants(run.tables("chunks")) == ["a", "b"]


def test_a_tenant_sees_its_own_chunks_only_in_table_order(run: Run) -> None:
    stored(run, chunks("b", ["b0", "b1"]), chunks("a", ["a0"]), chunks("b", ["b2"]))
    mine = TenantChunks(run.tables("chunks"), "b")
    for _again in range(2):
        assert [text for batch in mine.batches() for text in batch] == ["b0", "b1", "b2"]
    assert mine.chunk_ids.to_pylist() == ["c0", "c1", "c0"]
    assert mine.n == 3


def test_batches_stay_in_order_over_many_parts_and_row_groups(run: Run) -> None:
    texts = [str(number) for number in range(20_000)]
    stored(run, chunks("b", texts), chunks("a", texts))
    batches = list(TenantChunks(run.tables("chunks"), "b").batches())
    assert len(batches) > 1
    assert [text for batch in batches for text in batch] == texts


def test_an_unknown_tenant_has_no_chunks(run: Run) -> None:
    nobody = TenantChunks(stored(run, chunks("a", ["x"])).tables("chunks"), "nobody")
    assert (nobody.n, list(nobody.batches())) == (0, [])
    assert nobody.digest == TenantChunks(run.tables("chunks"), "no one").digest


def test_the_digest_knows_ids_contents_and_order_and_nothing_of_other_tenants(tmp_path: Path) -> None:
    def digest(name: str, *tables: pa.Table) -> str:
        return TenantChunks(stored(Run(f"{tmp_path}/{name}"), *tables).tables("chunks"), "a").digest

    plain = digest("plain", chunks("a", ["x", "y"]))
    assert plain == digest("other", chunks("b", ["z"]), chunks("a", ["x", "y"]))
    assert plain != digest("order", chunks("a", ["y", "x"]))
    assert plain != digest("content", chunks("a", ["x", "z"]))
    assert plain != digest("ids", chunks("a", ["x", "y"], chunk_id=["c0", "c2"]))


def hexdigest(*updates: list[list[str]]) -> str:
    digest = Digest(2)
    for columns in updates:
        digest.update([pa.chunked_array([column], pa.string()) for column in columns])
    return digest.hexdigest()


def test_where_the_pieces_are_cut_does_not_matter_to_a_digest() -> None:
    assert hexdigest([["a", "bc"], ["d", ""]]) == hexdigest([["a"], ["d"]], [["bc"], [""]], [[], []])


@pytest.mark.parametrize(
    "other", [[["ab", "c"], ["d", ""]], [["a", "bc"], ["", "d"]], [["a", "bcd"], ["", ""]], [["bc", "a"], ["d", ""]]]
)
def test_where_a_value_ends_matters_to_a_digest(other: list[list[str]]) -> None:
    assert hexdigest([["a", "bc"], ["d", ""]]) != hexdigest(other)


def test_a_sliced_column_has_the_digest_of_its_visible_rows() -> None:
    sliced = pa.chunked_array([pa.array(["zz", "a", "bc", "zz"]).slice(1, 2)])
    digest = Digest(1)
    digest.update([sliced])
    whole = Digest(1)
    whole.update([pa.chunked_array([["a", "bc"]])])
    assert digest.hexdigest() == whole.hexdigest()
