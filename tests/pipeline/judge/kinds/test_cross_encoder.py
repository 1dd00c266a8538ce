"""The cross-encoder judge's protocol. The model is tiny and drawn at random: nothing here speaks of quality."""

from __future__ import annotations

import asyncio
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models import running
from darklode.pipeline.judge import pair_scores
from darklode.pipeline.judge.kinds.cross_encoder import CrossEncoderJudge, CrossEncoderSettings
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.port import REPLIES
from helpers.scripted_stream import pairs
from helpers.tiny_bert import tiny_bert

transformers = pytest.importorskip("transformers")
constants = pytest.importorskip("huggingface_hub.constants")
pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the extra neural is not installed")


def make_model(folder: Path, labels: int = 1, head: bool = True) -> Path:
    """A model of so many labels, or without a head for any."""
    kind = "BertForSequenceClassification" if head else "BertModel"
    return tiny_bert(folder, kind, num_labels=labels, initializer_range=1.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network: whoever looks up a host fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network call")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def settings(model: Path | str, **given: Any) -> CrossEncoderSettings:
    return CrossEncoderSettings.model_validate({"model": str(model), "device": "cpu"} | given)


def asked(judge: CrossEncoderJudge, rows: pa.Table) -> list[tuple[list[int], pa.Table]]:
    async def collect() -> list[tuple[list[int], pa.Table]]:
        return [(answered.rows.tolist(), answered.replies) async for answered in judge.stream(rows)]

    return asyncio.run(collect())


ROWS = pairs(*((query, 10**chunk) for query in range(4) for chunk in range(8)))


def test_probabilities_are_the_models_sigmoids_whatever_comes_along(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_scores, "BATCHES_AT_ONCE", 2)
    answers = asked(CrossEncoderJudge(settings(model, batch_size=3)), ROWS)
    rows = [row for part, _ in answers for row in part]
    assert sorted(rows) == list(range(ROWS.num_rows))
    assert [len(part) for part, _ in answers] == [6] * 5 + [2]
    said = pa.concat_tables([replies for _, replies in answers])
    assert said.schema.equals(REPLIES)

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(model).eval()
    chunks = view(ROWS).to_pylist()
    expected = []
    for row in rows:
        tokens = tokenizer(ROWS["query"][row].as_py(), chunks[row], return_tensors="pt", truncation=True)
        expected.append(plain(**tokens).logits.sigmoid().item())
    np.testing.assert_allclose(said["probability"].to_numpy(), expected, atol=6e-5)
    assert len({round(value, 3) for value in expected}) > 10, "the model tells pairs apart"
    assert said["relevant"].to_pylist() == [value >= 0.5 for value in said["probability"].to_pylist()]
    for name in ("grade", "raw_reply", "error", "prompt_tokens"):
        assert said[name].null_count == ROWS.num_rows

    alone = asked(CrossEncoderJudge(settings(model)), ROWS.slice(rows[0], 1))[0][1]
    assert alone.equals(said.slice(0, 1))
    assert asked(CrossEncoderJudge(settings(model)), ROWS.slice(0, 0)) == []


def test_everything_that_changes_a_verdict_is_in_the_id(model: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path / "tiny", labels=1)
    (other / "vocab.txt").write_text((model / "vocab.txt").read_text() + "\nmore")
    given = [settings(model), settings(model, max_seq_length=9), settings(model, threshold=0.7), settings(other)]
    ids = [CrossEncoderJudge(one).judge_id for one in given]
    assert len(set(ids)) == 4
    assert ids[0].startswith("cross_encoder:tiny@files-")
    assert ids[0].endswith(":tokens=all:dtype=float32:threshold=0.5")
    assert CrossEncoderJudge(settings(model, batch_size=5)).judge_id == ids[0]


def test_pairs_are_cut_to_max_tokens(model: Path) -> None:
    rows = pairs((1, 111111), (1, 999999))
    (_, cut), *_ = asked(CrossEncoderJudge(settings(model, max_seq_length=12)), rows)
    (_, whole), *_ = asked(CrossEncoderJudge(settings(model)), rows)
    assert cut["probability"][0] == cut["probability"][1]
    assert whole["probability"][0] != whole["probability"][1]
    with pytest.raises(SettingsError, match="at most 64"):
        asked(CrossEncoderJudge(settings(model, max_seq_length=65)), rows)


def test_a_score_that_is_no_number_is_a_null_verdict(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = CrossEncoderJudge(settings(model))
    monkeypatch.setattr(judge, "_score", lambda texts: np.array([np.nan, 0.9]))
    (_, said), *_ = asked(judge, pairs((1, 1), (1, 2)))
    assert said["relevant"].to_pylist() == [None, True]
    assert said["error"].to_pylist() == ["the model's score is not a number", None]


def test_it_remembers(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asyncio.run(LedgerJudge(CrossEncoderJudge(settings(model)), Ledger(str(tmp_path))).judge(ROWS))
    judge = CrossEncoderJudge(settings(model))
    monkeypatch.setattr(judge, "_score", None)
    assert asyncio.run(LedgerJudge(judge, Ledger(str(tmp_path))).judge(ROWS)).equals(first)


@pytest.mark.parametrize("made", [{"labels": 3}, {"head": False}], ids=["three labels", "no head"])
def test_a_model_that_gives_no_score_is_refused(tmp_path: Path, made: dict[str, Any]) -> None:
    other = make_model(tmp_path / "other", **made)
    with pytest.raises(SettingsError, match="not a cross-encoder"):
        asked(CrossEncoderJudge(settings(other)), ROWS)


def test_code_of_the_models_own_is_refused(tmp_path: Path) -> None:
    own = make_model(tmp_path / "own")
    config = (
        (own / "config.json")
        .read_text()
        .replace("{", '{"auto_map": {"AutoModelForSequenceClassification": "modeling.Mine"},', 1)
    )
    (own / "config.json").write_text(config)
    with pytest.raises(MissingPart, match=r"needs its own code \(modeling\.Mine\)"):
        asked(CrossEncoderJudge(settings(own)), ROWS)


def test_a_name_without_its_owner_or_a_model_that_is_not_here_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="in full"):
        CrossEncoderJudge(settings("ms-marco-MiniLM-L6-v2"))
    with pytest.raises(MissingPart, match="the folder does not exist"):
        CrossEncoderJudge(settings(str(tmp_path / "nowhere"))).judge_id  # noqa: B018
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingPart, match="hf download"):
        CrossEncoderJudge(settings("cross-encoder/nothing")).judge_id  # noqa: B018


def test_without_the_package_the_way_to_install_it_is_said(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(MissingPart, match=r"darklode\[neural\]"):
        asked(CrossEncoderJudge(settings(model)), ROWS)


@pytest.mark.slow
def test_two_devices_give_the_same_replies(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (rows, said), *_ = asked(CrossEncoderJudge(settings(model)), ROWS)
    monkeypatch.setattr(running, "devices", lambda _device: ["cpu", "cpu"])
    (same, other), *_ = asked(CrossEncoderJudge(settings(model, batch_size=8)), ROWS)
    assert same == rows
    np.testing.assert_allclose(other["probability"].to_numpy(), said["probability"].to_numpy(), atol=1.1e-4)


def test_other_weights_in_the_same_folder_are_another_judge(tmp_path: Path) -> None:
    """So that judging runs again after a judge was distilled into the same folder; a copy is the same judge."""
    folder = make_model(tmp_path / "tiny")
    before = settings(folder).identity
    copy = tmp_path / "there" / "tiny"
    shutil.copytree(folder, copy)
    assert settings(copy).identity == before
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    assert settings(folder).identity != before
    assert settings("owner/name").identity["model"] == "owner/name"
