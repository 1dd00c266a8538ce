"""The kind `sparse` with a tiny SPLADE model at random weights: nothing here speaks of quality."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from darklode.flows.factories import identities, retrievers
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.models.running import RunningModel
from darklode.pipeline.retrieve.retrievers.kinds.sparse import KIND
from darklode.schemas.settings import Settings
from helpers.composites import TEXTS, composite_run, composite_settings, ids, opened, rankings, tiny_sparse_encoder
from helpers.tiny_bert import tiny_bert

pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the extra neural is not installed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_sparse_encoder(tmp_path_factory.mktemp("models") / "tiny")


def settings(cache: Path, model: Path | str, more: str = "") -> Settings:
    return composite_settings(cache, "splade", splade=f"{{kind: sparse, model: {model}, device: cpu{more}}}")


def test_scores_are_the_models_similarities_best_first(model: Path, tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder

    run = composite_run(tmp_path / "run")
    hits = opened(run, settings(tmp_path, model, ", batch_size: 2"), "splade", tmp_path / "s").search(
        ["open billing", " ", "reset the router"], 5
    )
    alone = SparseEncoder(str(model), device="cpu", local_files_only=True)
    queries = alone.encode_query(["open billing", "reset the router"], convert_to_sparse_tensor=False)
    expected = (queries @ alone.encode_document(TEXTS["acme"], convert_to_sparse_tensor=False).T).numpy()
    assert (hits.rows[1] == -1).all()
    for number, row in ((0, 0), (2, 1)):
        np.testing.assert_allclose(hits.scores[number], np.sort(expected[row])[::-1][:5], rtol=1e-5)
        np.testing.assert_allclose(expected[row][hits.rows[number]], hits.scores[number], rtol=1e-5)


def test_vectors_are_cached_across_runs_and_tenants_stay_apart(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = rankings(composite_run(tmp_path / "first"), settings(tmp_path, model))
    assert set(found["splade"]) == {"acme/q1", "acme/q2", "zeta/q1"}
    assert {chunk_id.partition("-")[0] for chunk_id in ids(found["splade"]["zeta/q1"])} == {"zeta"}
    monkeypatch.setattr(RunningModel, "model", property(lambda _self: pytest.fail("the model was loaded")))
    assert rankings(composite_run(tmp_path / "second"), settings(tmp_path, model)) == found


def test_it_is_identified_by_the_model_and_its_length(model: Path, tmp_path: Path) -> None:
    ours, slow, short = (
        identities(retrievers(settings(tmp_path, model, more)))
        for more in ("", ", batch_size: 1", ", max_seq_length: 9")
    )
    assert ours == slow
    assert ours != short


def test_a_missing_model_or_one_without_sparse_vectors_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingPart, match="the folder does not exist"):
        rankings(composite_run(tmp_path / "run"), settings(tmp_path, tmp_path / "nowhere"))
    dense = settings(tmp_path, tiny_bert(tmp_path / "dense"))
    assert as_kind(dense.retrievers["splade"], KIND).missing() == ["model dense is no sparse (SPLADE) model"]
    with pytest.raises(SettingsError, match=r"no sparse \(SPLADE\) model"):
        rankings(composite_run(tmp_path / "other"), dense)
