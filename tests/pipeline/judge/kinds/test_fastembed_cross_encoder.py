"""The fastembed cross-encoder judge with tiny models, compared with raw onnxruntime; nothing here speaks of quality."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.kinds import JudgeKind
from darklode.pipeline.judge.kinds.fastembed_cross_encoder import (
    FastembedCrossEncoderJudge,
    FastembedCrossEncoderSettings,
)
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.port import REPLIES
from darklode.schemas.settings import Settings
from helpers.scripted_stream import pairs
from helpers.tiny_onnx import COMMIT, N_TOKENS, into_hub_cache, tiny_cross_encoder

pytest.importorskip("fastembed", reason="fastembed is not installed")
onnxruntime = pytest.importorskip("onnxruntime")
constants = pytest.importorskip("huggingface_hub.constants")
from tokenizers import Tokenizer  # noqa: E402

ROWS = pairs(*((query, 10**chunk) for query in range(4) for chunk in range(8)))
MINILM = "Xenova/ms-marco-MiniLM-L-6-v2"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_cross_encoder(tmp_path_factory.mktemp("models") / "tiny")


def settings(model: Path | str, **values: Any) -> FastembedCrossEncoderSettings:
    return FastembedCrossEncoderSettings.model_validate({"model": str(model)} | values)


def judged(judge: FastembedCrossEncoderJudge, rows: pa.Table) -> tuple[list[int], pa.Table]:
    async def collect() -> list[tuple[list[int], pa.Table]]:
        return [(batch.rows.tolist(), batch.replies) async for batch in judge.stream(rows)]

    batches = asyncio.run(collect())
    return [row for rows, _ in batches for row in rows], pa.concat_tables([replies for _, replies in batches])


def expected(model: Path, rows: pa.Table) -> list[float]:
    """Probabilities by onnxruntime alone, one pair at a time, so without padding."""
    session = onnxruntime.InferenceSession(str(model / "onnx" / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(N_TOKENS)
    probabilities = []
    for query, chunk in zip(rows["query"].to_pylist(), view(rows).to_pylist(), strict=True):
        encoding = tokenizer.encode(query, chunk)
        columns = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        (logits,) = session.run(None, {name: np.array([values], np.int64) for name, values in columns.items()})
        probabilities.append(1 / (1 + np.exp(-float(logits[0, 0]))))
    return probabilities


def test_probabilities_are_the_sigmoids_of_onnxruntimes_scores(folder: Path) -> None:
    rows, replies = judged(FastembedCrossEncoderJudge(settings(folder, batch_size=3, threshold=0.53)), ROWS)
    assert sorted(rows) == list(range(ROWS.num_rows))
    assert replies.schema.equals(REPLIES)
    probabilities = expected(folder, ROWS.take(rows))
    assert len({round(value, 3) for value in probabilities}) > 10, "the model tells pairs apart"
    np.testing.assert_allclose(replies["probability"].to_numpy(), probabilities, atol=6e-5)
    labels = replies["relevant"].to_pylist()
    assert labels == [value >= 0.53 for value in replies["probability"].to_pylist()]
    assert len(set(labels)) == 2
    _, alone = judged(FastembedCrossEncoderJudge(settings(folder, threshold=0.53)), ROWS.slice(rows[0], 1))
    assert alone.equals(replies.slice(0, 1)), "whatever else is in the batch"


def test_everything_that_changes_a_verdict_is_in_the_id(folder: Path, tmp_path: Path) -> None:
    other = tiny_cross_encoder(tmp_path / "tiny", seed=8)
    ids = [FastembedCrossEncoderJudge(case).judge_id for case in (settings(folder), settings(other))]
    ids.append(FastembedCrossEncoderJudge(settings(folder, threshold=0.7)).judge_id)
    assert len(set(ids)) == 3
    assert ids[0].startswith("fastembed_cross_encoder:tiny@files-")
    assert ids[0].endswith(":threshold=0.5")
    assert FastembedCrossEncoderJudge(settings(folder, batch_size=5)).judge_id == ids[0]


def test_a_model_of_the_list_is_judged_with_from_the_hub_cache(tmp_path: Path) -> None:
    into_hub_cache(tiny_cross_encoder(tmp_path / "tiny"), tmp_path / "hub", MINILM)
    judge = FastembedCrossEncoderJudge(settings(MINILM))
    assert judge.judge_id == f"fastembed_cross_encoder:{MINILM}@{COMMIT}:threshold=0.5"
    assert judged(judge, ROWS)[1].num_rows == ROWS.num_rows


def test_several_labels_are_refused(tmp_path: Path) -> None:
    judge = FastembedCrossEncoderJudge(settings(tiny_cross_encoder(tmp_path / "tiny", labels=3)))
    with pytest.raises(SettingsError, match=r"not a cross-encoder with a single score \(output \(1, 3\)\)"):
        judged(judge, ROWS)


def test_verdicts_are_kept_in_the_ledger(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asyncio.run(LedgerJudge(FastembedCrossEncoderJudge(settings(folder)), Ledger(str(tmp_path))).judge(ROWS))
    judge = FastembedCrossEncoderJudge(settings(folder))
    monkeypatch.setattr(judge, "_score", None)
    assert asyncio.run(LedgerJudge(judge, Ledger(str(tmp_path))).judge(ROWS)).equals(first)


def test_the_kind_is_found_by_name_and_says_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(model: object) -> JudgeKind:
        values = {"judge": {"kind": "fastembed_cross_encoder", "model": str(model), "threshold": 0.4}}
        return as_kind(Settings.model_validate(values).judge, JudgeKind)

    assert kind(folder).missing() == []
    assert kind(folder).cut == 0.4
    kind(folder).fetch()
    assert f"hf download {MINILM} " in str(kind(MINILM).missing())
    with pytest.raises(MissingPart, match="cannot be downloaded"):
        FastembedCrossEncoderJudge(settings(MINILM)).judge_id  # noqa: B018
    assert "did you mean" in str(kind("ms-marco-MiniLM-L-6-v2").missing())
    with pytest.raises(ValueError, match=r"needs judge\.model"):
        kind("")
