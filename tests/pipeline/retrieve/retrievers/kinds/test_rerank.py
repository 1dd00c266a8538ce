"""The kind `rerank` with a tiny cross-encoder at random weights: nothing here speaks of quality."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from darklode.flows.factories import identities, retrievers
from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.base.models.running import RunningModel
from darklode.pipeline.retrieve.retrievers import rerank
from darklode.pipeline.retrieve.retrievers.kinds.rerank import KIND
from darklode.schemas.settings import Settings
from helpers.composites import TEXTS, composite_run, composite_settings, ids, opened, rankings, tiny_cross_encoder

pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the extra neural is not installed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_cross_encoder(tmp_path_factory.mktemp("models") / "tiny")


def settings(cache: Path, model: Path | str, more: str = "", of: str = "bm25") -> Settings:
    kind = f"{{kind: rerank, of: {of}, model: {model}, device: cpu{more}}}"
    return composite_settings(cache, "best", best=kind)


def test_scores_are_the_models_outputs_best_first(model: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    run, chosen = composite_run(tmp_path / "run"), settings(tmp_path, model, ", batch_size: 3")
    first = opened(run, composite_settings(tmp_path, "bm25"), "bm25", tmp_path / "bm25")
    hits = opened(run, chosen, "best", tmp_path / "best").search(["open billing", "", "reset the router"], 420)
    assert (hits.rows[1] == -1).all()
    alone = CrossEncoder(str(model), device="cpu", local_files_only=True)
    for number, query in ((0, "open billing"), (2, "reset the router")):
        found = hits.rows[number][hits.rows[number] >= 0].tolist()
        candidates = first.search([query], 100).rows[0]
        assert sorted(found) == sorted(candidates[candidates >= 0].tolist())
        pairs = [(query, TEXTS["acme"][row]) for row in found]
        expected = alone.predict(pairs, activation_fn=Identity(), show_progress_bar=False)
        np.testing.assert_allclose(hits.scores[number][: len(found)], expected, atol=1e-4)
        assert (np.diff(hits.scores[number][: len(found)]) <= 0).all()


def test_scores_are_cached_across_runs_and_kept_when_scoring_stops(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerank, "STORE_SECONDS", 0.0)
    monkeypatch.setattr(rerank, "_FORWARD_PASSES", 1)
    predict, calls = rerank.CrossEncoderModel.scores, []

    def failing(self: rerank.CrossEncoderModel, pairs: list[tuple[str, str]], *, as_probabilities: bool) -> object:
        calls.append(len(pairs))
        if len(calls) == 3:
            raise DarklodeError("out of memory")
        return predict(self, pairs, as_probabilities=as_probabilities)

    monkeypatch.setattr(rerank.CrossEncoderModel, "scores", failing)
    chosen = settings(tmp_path, model, ", batch_size: 2")
    with pytest.raises(DarklodeError, match="out of memory"):
        rankings(composite_run(tmp_path / "first"), chosen)
    scored = sum(calls[:2])
    found = rankings(composite_run(tmp_path / "second"), chosen)
    n_pairs = sum(map(len, found["best"].values()))
    assert sum(calls[3:]) == n_pairs - scored, "no pair is scored twice"
    monkeypatch.setattr(RunningModel, "model", property(lambda _self: pytest.fail("the model was loaded")))
    assert rankings(composite_run(tmp_path / "third"), chosen) == found


def test_equal_pairs_are_scored_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict, scored = rerank.CrossEncoderModel.scores, list[tuple[str, str]]()

    def recording(self: rerank.CrossEncoderModel, pairs: list[tuple[str, str]], *, as_probabilities: bool) -> object:
        scored.extend(pairs)
        return predict(self, pairs, as_probabilities=as_probabilities)

    monkeypatch.setattr(rerank.CrossEncoderModel, "scores", recording)
    best = opened(composite_run(tmp_path / "run"), settings(tmp_path, model), "best", tmp_path / "best")
    hits = best.search(["open billing", "reset the router", "open billing"], 420)
    assert hits.rows[0].tolist() == hits.rows[2].tolist()
    np.testing.assert_array_equal(hits.scores[0], hits.scores[2])
    assert len(scored) == len(set(scored)) == (hits.rows[:2] >= 0).sum()


def test_tenants_stay_apart_and_depth_bounds_the_list(model: Path, tmp_path: Path) -> None:
    found = rankings(composite_run(tmp_path / "run"), settings(tmp_path, model, ", depth: 2"))["best"]
    assert {len(ranking) for ranking in found.values()} <= {1, 2}
    assert set(found) == {"acme/q1", "acme/q2", "zeta/q1"}
    assert {chunk_id.partition("-")[0] for chunk_id in ids(found["zeta/q1"])} == {"zeta"}


def test_it_is_identified_by_model_length_depth_and_retriever_not_by_place_or_speed(
    model: Path, tmp_path: Path
) -> None:
    def identity(*given: str) -> object:
        return identities(retrievers(settings(tmp_path, *given)))["best"]  # type: ignore[arg-type]

    ours = identity(str(model))
    moved = tmp_path / "moved" / model.name
    moved.parent.mkdir()
    moved.symlink_to(model)
    assert ours == identity(str(moved), ", batch_size: 5")
    others = [identity(str(model), more) for more in (", max_seq_length: 9", ", depth: 5", ", dtype: bfloat16")]
    others.append(identity(str(model), "", "ppmi"))
    assert all(ours != other for other in others)


def test_a_missing_or_unsuitable_model_is_said_before_and_when_it_is_opened(tmp_path: Path) -> None:
    chosen = settings(tmp_path, tmp_path / "nowhere")
    assert as_kind(chosen.retrievers["best"], KIND).missing() == [
        f"model {tmp_path}/nowhere: the folder does not exist"
    ]
    with pytest.raises(MissingPart, match="the folder does not exist"):
        rankings(composite_run(tmp_path / "run"), chosen)
    several = tiny_cross_encoder(tmp_path / "several", labels=3)
    with pytest.raises(SettingsError, match="not a cross-encoder with a single score"):
        rankings(composite_run(tmp_path / "other"), settings(tmp_path, several))
