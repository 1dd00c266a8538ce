"""train-towers on a whole run: what it leaves, what stands, whose teacher it takes, and what it refuses."""

import json
from pathlib import Path

import pytest

from darklode.flows.jobs.train_towers import _adapted_encoder, train_towers
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit, SettingsError
from darklode.pipeline.train.release.adapter import Adapter
from helpers.adapted import TENANT, build_to_adapt, model_in, shipped_adapter

QUICK = {"distill": {"student_layers": 1, "max_steps": 20, "batch_size": 16, "learning_rates": [1e-3]}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build, a model of one layer, and an adapter of it."""
    root = tmp_path_factory.mktemp("towers")
    source = build_to_adapt(root / "run")
    model_in(root)
    shipped_adapter(root, source)
    return root


def contents(folder: Path) -> dict[str, bytes]:
    found = [*(folder / "tables").rglob("*"), *(folder / "query_encoder").rglob("*"), folder / "README.md"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.is_file()}


@pytest.mark.slow
def test_a_student_of_an_adapter_and_then_it_stands(root: Path) -> None:
    (root / "more.txt").write_text("\n".join(f"how to gupa {number}" for number in range(30)))
    given = ([str(root / "run")], "tiny", str(root / "out"), QUICK, str(root / "adapter"))
    files = [str(root / "more.txt")]
    said = train_towers(*given, files)
    assert "it retains " in said
    record = Adapter.open(str(root / "out"))
    assert (record.tenant, record.ships, record.facts["base"]["encoder"]) == (TENANT, True, "model")
    head = [part["type"] for part in json.loads((root / "out" / "query_encoder" / "modules.json").read_text())]
    assert any("Dense" in one for one in head), "the adapter's head is among what learns"
    assert Run(str(root / "out")).tables("raw_queries").rows("raw_queries") == 30
    page = (root / "out" / "README.md").read_text()
    assert all(title in page for title in ("## Retained quality", "## Agreement with the teacher", "## Size and speed"))
    before = contents(root / "out")
    assert train_towers(*given, files) == said
    assert contents(root / "out") == before


@pytest.mark.slow
def test_an_adapter_of_another_encoder_is_no_teacher(root: Path, tmp_path: Path) -> None:
    other = model_in(root).model_copy(update={"query_prompt": "otherwise "}).model_dump(mode="json")
    changed = QUICK | {"encoders": {"other": other}}
    with pytest.raises(DoesNotFit, match="was adapted from another encoder"):
        train_towers([str(root / "run")], "other", str(tmp_path / "out"), changed, str(root / "adapter"))


def test_a_teacher_reads_queries_with_the_prompt_of_its_folder(root: Path, tmp_path: Path) -> None:
    adapter, config = Adapter.open(str(root / "adapter")), tmp_path / "config_sentence_transformers.json"
    config.write_text(json.dumps({"prompts": {"query": "find "}, "default_prompt_name": "query"}))
    assert _adapted_encoder(adapter, tmp_path).query_prompt == "find ", "that of a model swap, not of its base"
    config.write_text(json.dumps({"prompts": {"query": "", "document": ""}, "default_prompt_name": None}))
    assert not _adapted_encoder(adapter, tmp_path).query_prompt


def test_what_cannot_be_is_refused(root: Path, tmp_path: Path) -> None:
    run, model = [str(root / "run")], str(root / "model")
    with pytest.raises(ArtifactError, match=r"holds a benchmark \(`darklode build`\)"):
        train_towers(run, model, str(root / "run"), QUICK)
    with pytest.raises(SettingsError, match=r"layers 9: the model has only 1 layers"):
        train_towers(run, model, str(tmp_path / "out"), {"distill": QUICK["distill"] | {"student_layers": 9}})
