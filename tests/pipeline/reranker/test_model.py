"""The initial model: a cross-encoder as it is, or a bi-encoder's transformer with a new head."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.reranker.model import InitialReranker, TrainableReranker
from darklode.schemas.pooling import LocalModel
from helpers.reranked import bi_encoder, cross_encoder
from helpers.tiny_bert import tiny_bert

pytest.importorskip("sentence_transformers")


def initial(folder: Path, seed: int = 1, **more: object) -> InitialReranker:
    return InitialReranker(LocalModel.model_validate({"model": str(folder), "device": "cpu"} | more), seed)


def test_a_bi_encoder_gets_a_head_that_depends_on_the_seed_alone(tmp_path: Path) -> None:
    made = initial(bi_encoder(tmp_path / "bi"))
    assert not made.is_cross_encoder
    first, again, other = (initial(tmp_path / "bi", seed).open() for seed in (1, 1, 2))
    for name, values in first.state().items():
        assert values.tobytes() == again.state()[name].tobytes()
        assert (values.tobytes() == other.state()[name].tobytes()) == ("classifier.weight" not in name)
    assert first.scores(["bado"], ["bade"]) != other.scores(["bado"], ["bade"])


def test_a_cross_encoder_scores_as_sentence_transformers_does_and_segments_count(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    made = initial(cross_encoder(tmp_path / "cross"), max_seq_length=20)
    assert made.is_cross_encoder
    opened, texts = made.open(), ["goda", "mula " * 30]
    plain = CrossEncoder(str(tmp_path / "cross"), device="cpu")
    plain.max_seq_length = 20
    pairs = [("bado", text) for text in texts]
    expected = plain.predict(pairs, activation_fn=Identity(), show_progress_bar=False)
    np.testing.assert_allclose(opened.scores(["bado"] * 2, texts), expected, atol=1e-6)
    logits = opened.logits(opened.features(["bado"] * 2, texts)).detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    assert opened.features(["bado"], ["goda"])["token_type_ids"].unique().tolist() == [0, 1]
    assert opened.scores([], []).shape == (0,)


def test_state_is_restored_from_rows(tmp_path: Path) -> None:
    first, second = (initial(bi_encoder(tmp_path / name), seed).open() for seed, name in enumerate(("a", "b")))
    flat = {
        name: values.reshape(len(values), -1) if values.ndim > 1 else values[None]
        for name, values in first.state().items()
    }
    second.restore(flat)
    assert second.scores(["bado"], ["goda"]) == first.scores(["bado"], ["goda"])
    assert isinstance(second, TrainableReranker)


def test_what_is_no_reranker_is_refused(tmp_path: Path) -> None:
    tiny_bert(tmp_path / "three", "BertForSequenceClassification", num_labels=3)
    with pytest.raises(SettingsError, match="has 3 outputs"):
        initial(tmp_path / "three").open()
    with pytest.raises(MissingPart, match="nowhere is not on this machine"):
        assert initial(Path("nowhere")).is_cross_encoder
