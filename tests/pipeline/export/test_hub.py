"""Datasets on the Hub: huggingface_hub uploads to a hub on loopback, which keeps what it takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.formats import export
from darklode.pipeline.export.hub import copy_dataset, dataset_id, push
from helpers.fake_hub import DatasetHub, dataset_hub
from helpers.finished_run import finished_run

hub_constants = pytest.importorskip("huggingface_hub.constants", reason="huggingface_hub is not installed")

# huggingface_hub passes files to httpx by a parameter that is deprecated for them.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TOKEN = "hf_of_the_tests"
URL = "hf://acme/search-labels"
NAME = "acme/search-labels"
CARD = """---
license: other
configs:
- config_name: qrels
  data_files:
  - split: train
    path: tables/qrels/train/*.parquet
- config_name: corpus
  data_files:
  - split: corpus
    path: tables/chunks/*.parquet
---
# Labels
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DatasetHub]:
    with dataset_hub(TOKEN) as served:
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(hub_constants, "ENDPOINT", served.address)
        monkeypatch.setattr(hub_constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub_constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(hub_constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
        yield served


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An exported folder with a card and configs."""
    export(finished_run(str(tmp_path / "run")), "mteb", tmp_path / "mteb")
    return tmp_path / "mteb"


def test_a_pushed_folder_is_private_and_complete(hub: DatasetHub, folder: Path) -> None:
    assert push(folder, URL) == f"{hub.address}/datasets/{NAME}"
    assert hub.private == {NAME: True}
    assert hub.datasets[NAME] == files(folder)
    assert len(hub.commits) == 1
    assert any(path.endswith(".parquet") for path in hub.datasets[NAME])


def test_a_second_push_replaces_files_of_the_first_and_leaves_others(hub: DatasetHub, folder: Path) -> None:
    push(folder, URL)
    hub.datasets[NAME]["notes.txt"] = b"ours"
    stale = next(path for path in files(folder) if path.startswith("queries/"))
    (folder / stale).rename(folder / "queries" / "renamed.parquet")
    push(folder, URL)
    assert hub.datasets[NAME] == files(folder) | {"notes.txt": b"ours"}
    assert hub.commits[-1][1] == {stale}


def test_public_only_if_asked(hub: DatasetHub, folder: Path) -> None:
    push(folder, URL, public=True)
    assert hub.private == {NAME: False}
    before, hub.datasets[NAME] = hub.datasets[NAME], {}
    with pytest.raises(ExportError, match="acme/search-labels is public on the Hub; push with --public"):
        push(folder, URL)
    assert hub.datasets[NAME] == {}
    push(folder, URL, public=True)
    assert hub.datasets[NAME] == before


def test_a_wrong_token_is_an_error_that_does_not_show_it(
    hub: DatasetHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_secret")
    with pytest.raises(ExportError, match=r"cannot push to acme/search-labels: .*401.*check HF_TOKEN") as caught:
        push(folder, URL)
    assert "secret" not in str(caught.value)
    assert hub.datasets == {}


def test_a_run_is_pushed_with_its_card_and_the_tables_of_its_configs(hub: DatasetHub, tmp_path: Path) -> None:
    run = finished_run(str(tmp_path / "run"), folders=True)
    with pytest.raises(ExportError, match="has no dataset card with configs"):
        copy_dataset(run, tmp_path / "none")
    run.store.write("README.md", CARD.encode())
    (tmp_path / "copy").mkdir()
    copy_dataset(run, tmp_path / "copy")
    push(tmp_path / "copy", "hf://datasets/acme/search-labels")
    parts = {part.file for table in ("qrels", "chunks") for part in run.parts()[table]}
    assert set(hub.datasets[NAME]) == {"README.md", *parts}
    assert hub.datasets[NAME]["README.md"].decode() == CARD
    assert all(hub.datasets[NAME][file] == run.store.read(file) for file in parts)


def test_a_missing_file_is_not_pushed_empty(tmp_path: Path) -> None:
    run = finished_run(str(tmp_path / "run"), folders=True)
    run.store.write("README.md", CARD.encode())
    missing = run.parts()["chunks"][0].file
    run.store.delete(missing)
    with pytest.raises(ExportError, match=f"{missing} is missing"):
        copy_dataset(run, tmp_path / "copy")


def test_a_format_without_a_card_is_refused(tmp_path: Path) -> None:
    (tmp_path / "beir").mkdir()
    with pytest.raises(ExportError, match="this format has no dataset card; omit --format to push the run"):
        push(tmp_path / "beir", URL)


@pytest.mark.parametrize(
    "url",
    ["acme/labels", "hf://labels", "hf://datasets/labels", "hf://a/b/c", "https://huggingface.co/a/b", "hf://a/b c"],
)
def test_other_addresses_are_errors(url: str) -> None:
    with pytest.raises(ExportError, match="is no dataset of the Hub; expected hf://ORGANIZATION/NAME"):
        dataset_id(url)
