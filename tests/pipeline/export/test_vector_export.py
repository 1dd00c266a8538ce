"""Vectors as search engines load them: what comes back is what went in, and finds what an exact search finds."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from darklode.flows.open_index import export_index
from darklode.pipeline.base.errors import CommandLineError, DoesNotFit, ExportError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.export import vector_export
from helpers.indexed import IDS, clustered, copied

QUERIES = clustered(20, seed=3)


def exact(vectors: Floats) -> list[list[str]]:
    """Ids of the ten texts of the greatest inner product."""
    return [[IDS[row] for row in np.argsort(-(vectors @ query), kind="stable")[:10]] for query in QUERIES]


def client() -> Any:
    """Qdrant's own client, whose local mode needs no server."""
    qdrant = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    return qdrant.QdrantClient(":memory:")


def loaded(folder: Path) -> Any:
    """A collection, as the folder's README says."""
    from qdrant_client.models import PointsList, VectorParams

    found, collection = client(), json.loads((folder / "collection.json").read_text())
    found.create_collection("texts", vectors_config=VectorParams(**collection["vectors"]))
    for file in sorted(folder.glob("points-*.json")):
        found.upsert("texts", PointsList.model_validate_json(file.read_bytes()).points)
    return found


@pytest.mark.slow
def test_qdrant_gives_back_the_vectors_and_finds_what_an_exact_search_finds(
    indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_export, "BYTES_PER_FILE", 1 << 18)
    files = export_index(str(indexed / "index"), "qdrant", tmp_path / "out", None, None)
    assert len(files) > 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collection = loaded(tmp_path / "out")
        records = collection.scroll("texts", limit=5000, with_vectors=True)[0]
        found = [collection.query_points("texts", query=query.tolist(), limit=10).points for query in QUERIES]
    vectors = {one.payload["text_id"]: np.array(one.vector, np.float32) for one in records}
    assert sorted(vectors) == IDS
    back = np.stack([vectors[name] for name in IDS])
    np.testing.assert_allclose(back, clustered(), atol=1e-6)
    assert [[one.payload["text_id"] for one in mine] for mine in found] == exact(back)
    codes = {one.payload["semantic_id"] for one in records}
    assert len(codes) == len(IDS)
    assert {len(one.split("-")) for one in codes} == {4}  # three levels, and what tells equal ones apart


def bulk(folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Actions and documents, as the bulk API reads them: line by line, in pairs, the last line ended."""
    for file in sorted(folder.glob("points-*.ndjson")):
        body = file.read_bytes()
        assert body.endswith(b"\n")
        lines = [json.loads(line) for line in body[:-1].split(b"\n")]
        yield from zip(lines[::2], lines[1::2], strict=True)


def test_opensearch_is_given_what_its_mapping_says(shipped: Path, tmp_path: Path) -> None:
    export_index(str(shipped / "run"), "opensearch", tmp_path / "out", "tiny", None)
    rows = list(bulk(tmp_path / "out"))
    mapping = json.loads((tmp_path / "out" / "index.json").read_text())["mappings"]["properties"]
    assert len(rows) == 204
    assert len({UUID(action["index"]["_id"]) for action, _ in rows}) == 204
    assert {frozenset(document) for _, document in rows} == {frozenset(mapping)}
    assert {len(document["vector"]) for _, document in rows} == {mapping["vector"]["dimension"]}
    named = [document["text_id"] for _, document in rows]
    assert named == sorted(named)
    lengths = np.linalg.norm(np.array([document["vector"] for _, document in rows]), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
    assert rows[0][1]["text"]
    assert rows[0][1]["semantic_id"] is None


def test_the_same_vectors_give_the_same_bytes_whatever_the_blocks(
    indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine in ("qdrant", "opensearch"):
        first = export_index(str(indexed / "index"), engine, tmp_path / engine, None, None)
        again = export_index(str(indexed / "index"), engine, tmp_path / f"{engine} again", None, None)
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
        with monkeypatch.context() as patch:
            patch.setattr(vector_export, "TEXTS_PER_BLOCK", 100)
            small = export_index(str(indexed / "index"), engine, tmp_path / f"{engine} small", None, None)
        assert len(small) == len(first) + 14
    whole, parts = (list(bulk(tmp_path / name)) for name in ("opensearch", "opensearch small"))
    assert whole == parts


def test_texts_from_outside_are_data(tmp_path: Path) -> None:
    class Odd:
        tenants = ("a'; DROP TABLE block; --",)

        def text_tables(self) -> Iterator[pa.Table]:
            said = ['"}\n{"index": {}}', "\t\x01\u2028ünd 'x'"]
            yield pa.table(dict.fromkeys(vector_export.TEXT_SCHEMA.names, said), schema=vector_export.TEXT_SCHEMA)

    class Vectors:
        class encoder:  # noqa: N801
            @staticmethod
            def encoder_id() -> str:
                return "e"

        @staticmethod
        def blocks(_hashes: object, _rows: int) -> Iterator[tuple[int, Floats]]:
            yield 0, np.eye(2, dtype=np.float32)

    odd: Any = Odd()
    odd.stored_vectors = Vectors()
    vector_export.export_points(odd, "opensearch", tmp_path / "out")
    assert [row["text"] for _, row in bulk(tmp_path / "out")] == ['"}\n{"index": {}}', "\t\x01\u2028ünd 'x'"]


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(indexed: Path, shipped: Path, tmp_path: Path) -> None:
    index, run, out = str(indexed / "index"), str(shipped / "run"), tmp_path / "out"
    with pytest.raises(ExportError, match="unknown engine 'solr'; use one of opensearch, qdrant"):
        export_index(index, "solr", out, None, None)
    with pytest.raises(CommandLineError, match="--encoder NAME"):
        export_index(run, "qdrant", out, None, None)
    with pytest.raises(CommandLineError, match="omit --encoder"):
        export_index(index, "qdrant", out, "tiny", None)
    with pytest.raises(DoesNotFit, match="no tenant other"):
        export_index(index, "qdrant", out, None, "other")
    assert not out.exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ExportError, match="not an empty folder"):
        export_index(index, "qdrant", tmp_path / "full", None, None)
    folder = copied(indexed / "index", tmp_path / "index")
    facts = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(facts | {"content": "before"}))
    with pytest.raises(DoesNotFit, match="darklode index update"):
        export_index(str(folder), "qdrant", out, None, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "index"]
