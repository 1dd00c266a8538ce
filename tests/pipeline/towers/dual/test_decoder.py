"""Decoders as towers, tiny ones with weights at random: the protocol is tested, nothing is said of quality."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.decoder import CONTENT, TITLE, is_causal
from darklode.pipeline.towers.dual.stage import validation_sample_of
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.pipeline.towers.dual.training import train_towers
from darklode.pipeline.towers.dual.trial_settings import TrialSettings
from darklode.pipeline.towers.dual.triplet_batches import TripletStream
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.schemas.adaptation import AdaptSettings
from helpers.tiny_bert import tiny_bert
from helpers.tiny_decoder import Family, tiny_decoder

from .conftest import QUICK, Trained

TITLES = ["a title", None, "a title alone", None, None]
CONTENTS = ["a topic\nits words", "of one line", None, "first line\nsecond line", None]
TEXTS = ["a title\na topic\nits words", "of one line", "a title alone", "first line\nsecond line"]

FRESH = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
texts, *folders = json.loads(sys.argv[1]), *sys.argv[2:]
for folder in folders:
    loaded = SentenceTransformer(folder, device="cpu")
    np.savez(f"{folder}.npz", documents=loaded.encode_document(texts), queries=loaded.encode_query(texts))
assert "darklode" not in sys.modules
"""


@pytest.fixture(scope="module", params=get_args(Family))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformersSettings:
    return settings_of(tiny_decoder(tmp_path_factory.mktemp("decoder") / "model", request.param))


def settings_of(folder: Path) -> SentenceTransformersSettings:
    return SentenceTransformersSettings(model=str(folder), device="cpu", query_prompt="ask ", document_prompt="read ")


def opened(model: SentenceTransformersSettings, **changed: object) -> DualTowers:
    return DualTowers(model, QUICK.model_copy(update=changed), AdaptSettings(lora_rank=2))


def test_a_decoder_is_known_by_what_its_tokens_see(model: SentenceTransformersSettings, tmp_path: Path) -> None:
    assert is_causal(SentenceTransformer(model.model, device="cpu"))
    assert not is_causal(SentenceTransformer(str(tiny_bert(tmp_path / "bert")), device="cpu"))


def test_each_view_is_read_before_its_placeholder(model: SentenceTransformersSettings) -> None:
    towers = opened(model)
    found = towers.document_features(TITLES, CONTENTS)
    tokenizer = towers.document.tokenizer
    title, content = tokenizer.convert_tokens_to_ids([TITLE, CONTENT])
    rows = [ids[: int(n)].tolist() for ids, n in zip(found["input_ids"], found["attention_mask"].sum(1), strict=True)]
    places = {
        name: [row.nonzero().flatten().tolist() for row in found[f"{name}_mask"]] for name in ("title", "content")
    }
    assert [row.count(title) for row in rows] == [1, 0, 0, 1, 0]
    assert all(row.count(content) == 1 for row in rows)
    assert places["title"] == [[rows[0].index(title) - 1], [], [rows[2].index(content) - 1], [], []]
    assert places["content"] == [
        [row.index(content) - 1] if text else [] for row, text in zip(rows, CONTENTS, strict=True)
    ]
    query = towers.query_features(["how"])["input_ids"][0]
    assert query[-1] == towers.query.tokenizer.eos_token_id


def test_one_pass_gives_what_three_would(model: SentenceTransformersSettings) -> None:
    """Each view from the text up to its placeholder alone, through the model and W^D, written out."""
    towers = opened(model)
    found = towers.document_features(TITLES[:1], CONTENTS[:1])
    _, views, there = towers.model((towers.query_features(["one"]), found))
    assert there.tolist() == [[True]] * 3
    ids = found["input_ids"][0]
    marks = [int((ids == towers.document.tokenizer.convert_tokens_to_ids(one)).nonzero()) for one in (TITLE, CONTENT)]
    for view, end in zip(views, [*marks, len(ids)], strict=True):
        hidden = towers.document[0].auto_model(input_ids=ids[None, :end]).last_hidden_state[0, -1]
        torch.testing.assert_close(view[0], hidden @ towers.trained["document.projection"].T, atol=1e-5, rtol=1e-4)


def test_a_text_that_spells_a_placeholder_makes_none(model: SentenceTransformersSettings) -> None:
    towers = opened(model)
    found = towers.document_features([f"a {TITLE} title", None], [f"words {CONTENT} {TITLE}", f"one {TITLE}"])
    title, content = towers.document.tokenizer.convert_tokens_to_ids([TITLE, CONTENT])
    rows = found["input_ids"].tolist()
    assert [row.count(title) for row in rows] == [1, 0]
    assert int(found["content_mask"][0].nonzero()) == len(rows[0]) - 2 - rows[0][::-1].index(content)


def test_what_is_cut_off_is_in_no_view_and_the_questions_stay(model: SentenceTransformersSettings) -> None:
    towers = opened(model)
    long = towers.document_features(["t " * 300, "t"], ["words", "words " * 300])
    assert long["input_ids"].shape[1] == 256
    assert long["title_mask"].sum(dim=1).tolist() == [0, 1]
    assert long["content_mask"].sum(dim=1).tolist() == [0, 1]
    short = towers.document_features(["t"], ["w"])["input_ids"][0]
    tail = short[-5:].tolist()
    assert [row[-5:].tolist() for row in long["input_ids"]] == [tail, tail]


def learned(both: Trained, family: Family, method: str, folder: Path) -> tuple[Floats, Floats]:
    """Train a decoder and save it; what it makes of TEXTS as documents and as queries."""
    model = settings_of(tiny_decoder(folder.with_name(family), family))
    with deterministic(1):
        dual = QUICK.model_copy(update={"max_steps": 4, "method": method})
        towers, tables = opened(model, method=method), both.out.tables()
        towers.initialize(TEXTS, ["one", "two"])
        before = towers.encode(TEXTS, queries=False)
        seen = validation_sample_of(tables, both.base.sources, 4, 0)
        history = train_towers(
            TripletStream(tables, 8, 1), seen, towers, dual, TrialSettings(1e-2, 0.05, 1), lambda *_: None
        )
        assert all(look.contrastive is not None and np.isfinite(look.contrastive) for look in history.eval_points[1:])
        wanted, asked = towers.encode(TEXTS, queries=False), towers.encode(TEXTS, queries=True)
        assert np.abs(wanted - before).max() > 1e-3
        towers.merged_query_tower().save_pretrained(str(folder))
    return wanted, asked


@pytest.mark.slow
def test_what_learned_loads_without_darklode(both: Trained, tmp_path: Path) -> None:
    methods: dict[Family, str] = {"Qwen2": "full", "Llama": "lora"}
    made = {tmp_path / method: learned(both, family, method, tmp_path / method) for family, method in methods.items()}
    given = [sys.executable, "-c", FRESH, json.dumps(TEXTS), *map(str, made)]
    subprocess.run(given, check=True, capture_output=True, cwd=tmp_path)
    for folder, (documents, queries) in made.items():
        found = np.load(f"{folder}.npz")
        np.testing.assert_allclose(found["documents"], documents, atol=1e-5)
        np.testing.assert_allclose(found["queries"], queries, atol=1e-5)


def test_what_no_decoder_can_do(model: SentenceTransformersSettings) -> None:
    with pytest.raises(SettingsError, match=r"max_tokens 20: the prompt alone has \d+ tokens"):
        opened(model.model_copy(update={"max_seq_length": 20}))
    with pytest.raises(SettingsError, match=r"dual\.prompt: there is no prompt nowhere"):
        opened(model, prompt="nowhere")
