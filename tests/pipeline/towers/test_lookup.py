"""A student of one layer begins with hidden states as its token embeddings."""

import numpy as np
import pytest
import torch

from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.lookup import can_look_up, hidden_states, replace_lower_layers, special_tokens
from darklode.pipeline.towers.student import first_and_last, keep_layers
from helpers.tiny_bert import tiny_bert


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformersSettings:
    folder = tiny_bert(tmp_path_factory.mktemp("lookup") / "bert", num_hidden_layers=3, initializer_range=0.3)
    return SentenceTransformersSettings(model=str(folder), device="cpu")


def test_a_tokens_state_is_that_of_a_text_of_one_token(settings: SentenceTransformersSettings) -> None:
    loaded = load_model(settings, "cpu")
    before, after = special_tokens(loaded.tokenizer)
    assert (before, after) == ([loaded.tokenizer.cls_token_id], [loaded.tokenizer.sep_token_id])
    states = hidden_states(loaded[0].auto_model, loaded.tokenizer, layer=-1)
    assert states.shape == (len(loaded.tokenizer), loaded[0].auto_model.config.hidden_size)
    token = loaded.tokenizer("b", add_special_tokens=False)["input_ids"][0]
    tokens = torch.tensor([[*before, token, *after]])
    with torch.no_grad():
        expected = loaded[0].auto_model(input_ids=tokens).last_hidden_state[0]
    np.testing.assert_allclose(states[token], expected[1], atol=1e-5)


def test_one_layer_over_the_table_gives_nearly_the_state_of_a_single_token(
    settings: SentenceTransformersSettings,
) -> None:
    whole, cut, plain = (load_model(settings, "cpu") for _ in range(3))
    replace_lower_layers(cut)
    keep_layers(cut[0].auto_model, 1, first_and_last)
    keep_layers(plain[0].auto_model, 1, first_and_last)
    letters = ["b", "d", "f", "k", "m", "p"]
    expected, found, other = (model.encode(letters, normalize_embeddings=True) for model in (whole, cut, plain))
    assert (found * expected).sum(axis=1).mean() > (other * expected).sum(axis=1).mean()


def test_the_table_passes_through_the_layer_norm_unchanged(settings: SentenceTransformersSettings) -> None:
    loaded = load_model(settings, "cpu")
    model = loaded[0].auto_model
    states = hidden_states(model, loaded.tokenizer, layer=-2)
    replace_lower_layers(loaded)
    with torch.no_grad():
        rows = model.embeddings(input_ids=torch.arange(len(states))[None, 5:25])[0]
    np.testing.assert_allclose(rows, states[5:25], atol=1e-3)


def test_only_models_built_like_bert_are_changed(settings: SentenceTransformersSettings) -> None:
    model = load_model(settings, "cpu")[0].auto_model
    assert can_look_up(model)
    del model.embeddings.position_embeddings
    assert not can_look_up(model)
