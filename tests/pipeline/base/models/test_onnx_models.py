"""fastembed's models on this machine: real fastembed and onnxruntime, tiny models, no network but loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darklode.pipeline.base.errors import MissingPart, SettingsError
from darklode.pipeline.base.models import local as local_models
from darklode.pipeline.base.models import onnx_models
from darklode.pipeline.base.models.onnx_models import (
    fetch_onnx,
    listed_model,
    load_onnx,
    locate_onnx,
    missing_for_onnx,
    versioned_onnx_name,
)
from darklode.schemas.pooling import OnnxModel
from helpers.fake_hub import COMMIT as SERVED_COMMIT
from helpers.fake_hub import fake_hub
from helpers.runs import REPOSITORY
from helpers.tiny_onnx import COMMIT, into_hub_cache, tiny_cross_encoder, tiny_encoder

pytest.importorskip("fastembed", reason="fastembed is not installed")
constants = pytest.importorskip("huggingface_hub.constants")

BGE, BGE_REPOSITORY, BGE_GRAPH = "BAAI/bge-small-en-v1.5", "Qdrant/bge-small-en-v1.5-onnx-Q", "model_optimized.onnx"


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty hub cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("FASTEMBED_CACHE_PATH", raising=False)
    local_models.hub_answers.cache_clear()
    return tmp_path / "hub"


def settings(model: Path | str, **values: Any) -> OnnxModel:
    return OnnxModel.model_validate({"model": str(model)} | values)


def test_the_list_gives_repository_files_and_implementation_whatever_the_case() -> None:
    listed = listed_model(settings(BGE.lower()), "TextEmbedding")
    assert (listed.name, listed.repository, listed.files) == (BGE, BGE_REPOSITORY, (BGE_GRAPH,))
    assert listed.implementation == "OnnxTextEmbedding"
    reranker = listed_model(settings("Xenova/ms-marco-MiniLM-L-6-v2"), "TextCrossEncoder")
    assert reranker.files == ("onnx/model.onnx",)


def test_a_name_outside_the_list_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"list of encoders; did you mean BAAI/bge-small-en-v1\.5\?"):
        listed_model(settings("BAAI/bge-small-en-v15"), "TextEmbedding")
    with pytest.raises(SettingsError, match="list of cross-encoders"):
        locate_onnx(settings(BGE), "TextCrossEncoder")
    assert "list of cross-encoders" in str(missing_for_onnx(settings(BGE), "TextCrossEncoder"))


def test_a_models_snapshot_in_the_hub_cache_is_found_and_loaded(tmp_path: Path, hub: Path) -> None:
    snapshot = into_hub_cache(tiny_encoder(tmp_path / "tiny", BGE_GRAPH), hub, BGE_REPOSITORY)
    folder = locate_onnx(settings(BGE), "TextEmbedding")
    assert folder
    assert (folder.folder, folder.name, folder.revision, folder.is_own) == (snapshot, BGE, COMMIT, False)
    assert versioned_onnx_name(settings(BGE), "TextEmbedding") == f"{BGE}@{COMMIT}"
    assert missing_for_onnx(settings(BGE), "TextEmbedding") == []
    model = load_onnx(settings(BGE), "TextEmbedding")
    assert len(next(iter(model.embed(["tea"])))) == 8


@pytest.mark.parametrize("absent", [BGE_GRAPH, "tokenizer.json"])
def test_an_incomplete_snapshot_counts_as_missing(tmp_path: Path, hub: Path, absent: str) -> None:
    snapshot = into_hub_cache(tiny_encoder(tmp_path / "tiny", BGE_GRAPH), hub, BGE_REPOSITORY)
    (snapshot / absent).unlink()
    assert locate_onnx(settings(BGE), "TextEmbedding") is None


def test_the_cache_of_fastembed_is_used_where_the_environment_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into_hub_cache(tiny_encoder(tmp_path / "tiny", BGE_GRAPH), tmp_path / "elsewhere", BGE_REPOSITORY)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "elsewhere"))
    assert locate_onnx(settings(BGE), "TextEmbedding")


def test_a_model_that_is_not_here_says_how_to_fetch_it() -> None:
    expected = f"`hf download {BGE_REPOSITORY} tokenizer.json .* {BGE_GRAPH}`"
    with pytest.raises(MissingPart, match=f"its revision is unknown: .*{expected}"):
        versioned_onnx_name(settings(BGE), "TextEmbedding")
    with pytest.raises(MissingPart, match=f"cannot be downloaded .*{expected}"):
        fetch_onnx(settings(BGE), "TextEmbedding")
    (problem,) = missing_for_onnx(settings(BGE, revision="v2"), "TextEmbedding")
    assert "HF_HUB_OFFLINE disables the hub" in problem
    assert "--revision v2`" in problem
    assert versioned_onnx_name(settings(BGE, revision=COMMIT), "TextEmbedding") == f"{BGE}@{COMMIT}"


FETCH = """
import json, sys
from darklode.pipeline.base.models.onnx_models import fetch_onnx, load_onnx
from darklode.schemas.pooling import OnnxModel
settings = OnnxModel(model="BAAI/bge-small-en-v1.5")
folder = fetch_onnx(settings, "TextEmbedding")
vectors = list(load_onnx(settings, "TextEmbedding").embed(["tea"]))
print(json.dumps([folder.revision, sorted(file.name for file in folder.folder.iterdir()), len(vectors[0])]))
"""


def test_a_model_of_the_list_is_fetched_from_the_hub(tmp_path: Path) -> None:
    """In a process of its own: the hub's address is read when its library is imported."""
    source = tiny_encoder(tmp_path / "tiny", BGE_GRAPH)
    (source / "unneeded.onnx").write_bytes(b"of another precision")
    with fake_hub(source, BGE_REPOSITORY) as endpoint:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home"), "PYTHONPATH": f"{REPOSITORY}/src"}
        done = subprocess.run(
            [sys.executable, "-c", FETCH], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    files = ["config.json", BGE_GRAPH, "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    assert json.loads(done.stdout.splitlines()[-1]) == [SERVED_COMMIT, sorted(files), 8]


def test_a_folders_revision_is_a_hash_of_its_files(tmp_path: Path) -> None:
    seeds = {"first": 1, "same": 1, "other": 2}
    first, same, other = (tiny_encoder(tmp_path / name / "tiny", seed=seed) for name, seed in seeds.items())
    names = [versioned_onnx_name(settings(folder), "TextEmbedding") for folder in (first, same, other)]
    assert names[0] == names[1] != names[2]
    assert names[0].startswith("tiny@files-")
    (same / "tokenizer_config.json").write_text('{"model_max_length": 5, "pad_token": "[PAD]"}')
    assert versioned_onnx_name(settings(same), "TextEmbedding") != names[0]


def test_folders_with_different_files_and_pooling_are_different_models_in_one_process(tmp_path: Path) -> None:
    first = tiny_encoder(tmp_path / "first", seed=1)
    cases = [
        (first, "mean"),
        (tiny_encoder(tmp_path / "weights", seed=2), "mean"),
        (tiny_encoder(tmp_path / "graph", "model.onnx", seed=3), "mean"),
        (first, "last_token"),
        (first, "mean"),
    ]
    models = [load_onnx(settings(folder), "TextEmbedding", pooling) for folder, pooling in cases]
    *vectors, again = (next(iter(model.embed(["tea"]))) for model in models)
    assert np.array_equal(vectors[0], again)
    assert len({tuple(vector.round(4)) for vector in vectors}) == 4


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "no ONNX file, such as onnx/model.onnx"),
        (["a.onnx", "b.onnx"], r"several ONNX files \(a\.onnx, b\.onnx\) and no onnx/model\.onnx"),
    ],
)
def test_a_folder_without_one_graph_is_refused(tmp_path: Path, graphs: list[str], message: str) -> None:
    folder = tiny_encoder(tmp_path / "tiny", "only.onnx")
    content = (folder / "only.onnx").read_bytes()
    (folder / "only.onnx").unlink()
    for name in graphs:
        (folder / name).write_bytes(content)
    with pytest.raises(MissingPart, match=message):
        locate_onnx(settings(folder), "TextEmbedding")


def test_the_usual_graph_is_taken_where_there_are_several(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "tiny")
    (folder / "onnx" / "model_quantized.onnx").write_bytes(b"")
    located = locate_onnx(settings(folder), "TextEmbedding")
    assert located
    assert located.graph == "onnx/model.onnx"


def test_what_a_folder_lacks_is_named(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path / "tiny")
    (folder / "tokenizer_config.json").unlink()
    assert missing_for_onnx(settings(folder), "TextEmbedding") == [
        f"model {folder}: the folder has no tokenizer_config.json"
    ]
    assert "the folder does not exist" in str(missing_for_onnx(settings("./nowhere"), "TextEmbedding"))


def test_a_broken_graph_is_an_error_of_ours(tmp_path: Path) -> None:
    folder = tiny_cross_encoder(tmp_path / "tiny")
    (folder / "onnx" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(MissingPart, match=r"tiny cannot be loaded \(\w+: "):
        load_onnx(settings(folder), "TextCrossEncoder")


def test_without_fastembed_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_encoder(tmp_path / "tiny")
    monkeypatch.setitem(sys.modules, "fastembed", None)
    monkeypatch.setattr(onnx_models, "find_spec", lambda name: None if name == "fastembed" else object())
    install = 'pip install "darklode[light]"'
    assert missing_for_onnx(settings(folder), "TextEmbedding") == [install]
    for model in (folder, BGE):
        with pytest.raises(MissingPart, match="needs fastembed: pip install"):
            load_onnx(settings(model), "TextEmbedding", "mean")
    assert versioned_onnx_name(settings(folder), "TextEmbedding"), "the id of a folder needs no package"
