"""The kind `multi_vector` with a tiny ColBERT model at random weights: nothing here speaks of quality."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.models import local
from darklode.pipeline.base.models.running import RunningModel
from darklode.pipeline.retrieve.retrievers import multi_vector
from darklode.pipeline.retrieve.retrievers.kinds.multi_vector import KIND
from darklode.schemas.settings import Settings
from helpers.composites import (
    TEXTS,
    composite_run,
    composite_settings,
    ids,
    opened,
    rankings,
    tiny_multi_vector_encoder,
)
from helpers.tiny_bert import tiny_bert

pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or bool(local.missing_class("MultiVectorEncoder")),
    reason="sentence-transformers 6 is not installed",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_multi_vector_encoder(tmp_path_factory.mktemp("models") / "tiny")


def settings(cache: Path, model: Path | str, more: str = "") -> Settings:
    return composite_settings(cache, "colbert", colbert=f"{{kind: multi_vector, model: {model}, device: cpu{more}}}")


def test_scores_are_the_models_similarities_best_first(model: Path, tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    run, queries = composite_run(tmp_path / "run"), ["open billing", " ", "reset the router"]
    hits = opened(run, settings(tmp_path, model, ", batch_size: 2"), "colbert", tmp_path / "c").search(queries, 5)
    alone = MultiVectorEncoder(str(model), device="cpu", local_files_only=True)
    expected = alone.similarity(
        alone.encode_query([queries[0], queries[2]]), alone.encode_document(TEXTS["acme"])
    ).numpy()
    assert (hits.rows[1] == -1).all()
    for number, row in ((0, 0), (2, 1)):
        np.testing.assert_allclose(hits.scores[number], np.sort(expected[row])[::-1][:5], rtol=1e-3)
        np.testing.assert_allclose(expected[row][hits.rows[number]], hits.scores[number], rtol=1e-3)


def test_as_a_reranker_it_orders_the_others_hits_by_the_same_scores(model: Path, tmp_path: Path) -> None:
    run, queries = composite_run(tmp_path / "run"), ["open billing", "", "reset the router"]
    full = opened(run, settings(tmp_path, model), "colbert", tmp_path / "full").search(queries, 99)
    reranked = opened(run, settings(tmp_path, model, ", of: bm25, depth: 3"), "colbert", tmp_path / "top").search(
        queries, 99
    )
    first = opened(run, composite_settings(tmp_path, "bm25"), "bm25", tmp_path / "bm25").search(queries, 3)
    assert reranked.rows.shape == full.rows.shape
    assert (reranked.rows[:, 3:] == -1).all()
    for number in range(3):
        candidates = first.rows[number][first.rows[number] >= 0].tolist()
        scores = dict(zip(full.rows[number].tolist(), full.scores[number].tolist(), strict=True))
        assert [row for row in full.rows[number].tolist() if row in candidates and row >= 0] == [
            row for row in reranked.rows[number].tolist() if row >= 0
        ]
        assert [scores[row] for row in candidates] == pytest.approx(
            [reranked.scores[number][reranked.rows[number].tolist().index(row)] for row in candidates], abs=0
        )


def test_vectors_are_cached_across_runs_and_tenants_stay_apart(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(tmp_path, model, ", of: bm25")
    found = rankings(composite_run(tmp_path / "first"), chosen)
    assert set(found["colbert"]) == {"acme/q1", "acme/q2", "zeta/q1"}
    assert {chunk_id.partition("-")[0] for chunk_id in ids(found["colbert"]["zeta/q1"])} == {"zeta"}
    monkeypatch.setattr(RunningModel, "model", property(lambda _self: pytest.fail("the model was loaded")))
    assert rankings(composite_run(tmp_path / "second"), chosen) == found


def test_many_chunks_are_reranked_not_searched(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_vector, "MAX_CHUNKS", 5)
    with pytest.raises(SettingsError, match=r"retrievers.colbert: 7 chunks are too many .* of: bm25"):
        rankings(composite_run(tmp_path / "run"), settings(tmp_path, model))
    assert rankings(composite_run(tmp_path / "other"), settings(tmp_path, model, ", of: bm25"))["colbert"]


def test_a_missing_model_another_class_or_an_old_library_is_an_error(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingPart, match="the folder does not exist"):
        rankings(composite_run(tmp_path / "run"), settings(tmp_path, tmp_path / "nowhere"))
    dense = settings(tmp_path, tiny_bert(tmp_path / "dense"))
    assert as_kind(dense.retrievers["colbert"], KIND).missing() == ["model dense is no multi-vector (ColBERT) model"]
    with pytest.raises(SettingsError, match="no multi-vector"):
        rankings(composite_run(tmp_path / "other"), dense)
    monkeypatch.setattr(local, "version", lambda _name: "5.4.0")
    chosen = settings(tmp_path, model)
    (problem,) = as_kind(chosen.retrievers["colbert"], KIND).missing()
    assert problem == "MultiVectorEncoder needs sentence-transformers 6 or newer, 5.4.0 is installed"
    with pytest.raises(MissingPart, match="needs sentence-transformers 6"):
        rankings(composite_run(tmp_path / "third"), chosen)
