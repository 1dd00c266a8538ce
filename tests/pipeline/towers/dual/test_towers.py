"""Both towers: what learns, where they begin, that views and served vectors are one, and what cannot be."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.towers import DualSettings
from helpers.tiny_bert import tiny_bert

from .conftest import QUICK, Trained

TITLES, CONTENTS = ["title", None, "b"], ["body words", "another one", None]
TEXTS = ["title\nbody words", "another one", "b"]
LORA = AdaptSettings(lora_rank=2)


def opened(both: Trained, **changed: object) -> DualTowers:
    return DualTowers(both.encoder, QUICK.model_copy(update=changed), LORA)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_last_view_is_what_is_served(both: Trained, method: str) -> None:
    towers = opened(both, method=method)
    towers.initialize(TEXTS, ["one", "two"])
    queries, views, there = towers.model((towers.query_features(["one"]), towers.document_features(TITLES, CONTENTS)))
    assert there.tolist() == [[True, False, True], [True, True, False], [True, True, True]]
    served = towers.merged_query_tower()
    for mine, theirs in ((views[2], served.encode_document(TEXTS)), (queries, served.encode_query(["one"]))):
        np.testing.assert_allclose(functional.normalize(mine, dim=1).detach().numpy(), theirs, atol=1e-6)
    assert served.encode_query(["one"], truncate_dim=4).shape == (1, 4)
    assert not any("lora" in name for name, _ in served.named_parameters())


def test_title_and_content_are_means_of_their_tokens(both: Trained) -> None:
    towers = opened(both)
    _, views, _ = towers.model((towers.query_features(["one"]), towers.document_features(TITLES, CONTENTS)))
    given = towers.document_features(TITLES, CONTENTS)
    masks = [given.pop(f"{name}_mask") for name in ("title", "content")]
    hidden = towers.document[0](given)["token_embeddings"]
    weight = towers.trained["document.projection"]
    for view, mask in zip(views, masks, strict=False):
        expected = torch.stack([one[chosen.bool()].mean(dim=0) for one, chosen in zip(hidden, mask, strict=True)])
        known = mask.any(dim=1)
        torch.testing.assert_close(view[known], (expected @ weight.T)[known])


def test_both_projections_begin_as_the_same_directions_the_widest_first(both: Trained) -> None:
    towers = opened(both)
    towers.initialize(TEXTS, ["one", "two"])
    query, document = (towers.trained[f"{name}.projection"].detach() for name in ("query", "document"))
    assert torch.equal(query, document)
    torch.testing.assert_close(query @ query.T, torch.eye(8), atol=1e-5, rtol=0)
    spread = (torch.from_numpy(towers.encode(TEXTS, queries=False)) ** 2).sum(dim=0)
    assert spread[0] == spread.max()


def test_a_query_tower_of_fewer_layers_begins_near_the_whole_one(tmp_path: Path) -> None:
    """The document tower keeps all layers, and what is handed over tells both apart."""
    model = tiny_bert(tmp_path / "model", num_hidden_layers=3, initializer_range=0.3)
    encoder = SentenceTransformersSettings(model=str(model), device="cpu")
    texts = [f"{one}{other} {other}" for one in "bdfklmnp" for other in ("adu", "efi", "ama", "opa")]
    whole, part = (
        DualTowers(encoder, QUICK.model_copy(update={"query_tower_layers": layers}), LORA) for layers in (None, 2)
    )
    with torch.no_grad():
        far = part.encode(texts, queries=True)
    for towers in (whole, part):
        towers.initialize(texts, texts)
    assert [len(one[0].auto_model.encoder.layer) for one in (part.query, part.document)] == [2, 3]
    assert torch.equal(part.trained["document.projection"], whole.trained["document.projection"])
    wanted = whole.encode(texts, queries=True)
    near = np.linalg.norm(part.encode(texts, queries=True) - wanted, axis=1).mean()
    assert near < 0.5 * np.linalg.norm(far - wanted, axis=1).mean()
    part.merged_query_tower().save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    layers = [json.loads(one.read_text()).get("num_hidden_layers") for one in (tmp_path / "saved").rglob("config.json")]
    assert sorted(filter(None, layers)) == [2, 3]
    with pytest.raises(SettingsError, match="layers 4: the model has only 3 layers"):
        DualTowers(encoder, QUICK.model_copy(update={"query_tower_layers": 4}), LORA)


@pytest.mark.parametrize("layers", [None, 2])
def test_towers_start_from_texts_with_their_prompts(tmp_path: Path, layers: int | None) -> None:
    """Projections are fitted to what the towers will read: vectors of texts that already carry the prompt."""
    model = tiny_bert(tmp_path / "model", num_hidden_layers=3, initializer_range=0.3)
    plain = SentenceTransformersSettings(model=str(model), device="cpu")
    asking = plain.model_copy(update={"query_prompt": "q zzzz qqqq ", "document_prompt": "d xxxx jjjj "})
    texts = [f"{one}{other} {other}" for one in "bdfklmnp" for other in ("adu", "efi", "ama", "opa")]
    dual = QUICK.model_copy(update={"query_tower_layers": layers, "matryoshka_dims": (4,)})
    with_prompts, by_hand = DualTowers(asking, dual, LORA), DualTowers(plain, dual, LORA)
    with_prompts.initialize(texts, texts)
    by_hand.initialize(
        [asking.document_prompt + text for text in texts], [asking.query_prompt + text for text in texts]
    )
    for name in ("query.projection", "document.projection"):
        torch.testing.assert_close(with_prompts.trained[name], by_hand.trained[name])


def test_what_learns(both: Trained) -> None:
    full, lora = opened(both), opened(both, method="lora")
    names = {name.partition(".")[0] for name in full.trained}
    assert names == {"query", "document"}
    assert not any("pooler" in name for name in full.trained)
    assert all(".lora_" in name or name.endswith(".projection") for name in lora.trained)
    weights = {name: one + 1 for name, one in full.state().items()}
    full.restore(weights)
    assert all(np.array_equal(one, weights[name]) for name, one in full.state().items())


def test_no_more_numbers_than_the_encoder_has(both: Trained) -> None:
    with pytest.raises(SettingsError, match=r"dual\.matryoshka_dims 16: .* has only 8 numbers"):
        DualTowers(both.encoder, DualSettings(matryoshka_dims=(16,)), LORA)
