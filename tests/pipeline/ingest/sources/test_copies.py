"""Files of S3 and of a hub on loopback, copied to a snapshot."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import DarklodeError, InputError
from darklode.pipeline.ingest.files import InputFile, list_files
from darklode.pipeline.ingest.sources import copies
from darklode.pipeline.ingest.sources.fetch import Fetched, Source, fetch, preview
from darklode.pipeline.ingest.sources.snapshot import Snapshot
from helpers.fake_hub import fake_hub
from helpers.s3_server import asked

pytest_plugins = ["helpers.s3_bucket"]

NAME = "acme/docs"


def names(folder: Path) -> list[str]:
    return [file.name for file in list_files(str(folder))]


@pytest.mark.server
def test_objects_are_copied_and_only_changed_ones_again(bucket: str, tmp_path: Path) -> None:
    store = Store(bucket)
    for name in ("a.jsonl", "b/c.jsonl", "b/notes.md"):
        store.write(name, b'{"text": "x"}\n')
    source = Source("docs", bucket)
    assert fetch(source, tmp_path) == Fetched(3, noun="files")
    assert names(tmp_path) == ["a.jsonl", "b/c.jsonl", "b/notes.md"]
    assert fetch(source, tmp_path) == Fetched(None, noun="files")
    store.write("b/c.jsonl", b'{"text": "changed"}\n')
    store.delete("a.jsonl")
    with asked() as requests:
        assert fetch(source, tmp_path) == Fetched(2, noun="files")
    assert len([path for method, path in requests if method == "GET"]) == 1
    assert names(tmp_path) == ["b/c.jsonl", "b/notes.md"]
    assert (tmp_path / "b/c.jsonl").read_bytes() == b'{"text": "changed"}\n'
    other = tmp_path / "pattern"
    assert fetch(Source("docs", f"{bucket}/**/*.jsonl"), other) == Fetched(1, noun="files")
    assert names(other) == ["b/c.jsonl"]
    with pytest.raises(InputError, match="matches no file"):
        preview(Source("docs", f"{bucket}/*.csv"), tmp_path)


@pytest.mark.server
def test_an_interrupted_copy_skips_the_objects_already_copied(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        Store(bucket).write(name, b'{"text": "x"}\n')

    def dies(store: Store, file: InputFile, snapshot: Snapshot) -> None:
        if file.name == "b.jsonl":
            raise InputError("connection lost")
        copy_object(store, file, snapshot)

    copy_object = copies._copy_object
    with monkeypatch.context() as patch:
        patch.setattr(copies, "_copy_object", dies)
        with pytest.raises(InputError, match="connection lost"):
            fetch(Source("docs", bucket), tmp_path)
    with asked() as requests:
        assert fetch(Source("docs", bucket), tmp_path) == Fetched(2, noun="files")
    assert [path.rpartition("/")[2] for method, path in requests if method == "GET"] == ["b.jsonl"]
    assert names(tmp_path) == ["a.jsonl", "b.jsonl"]


def test_a_hub_that_does_not_answer_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DarklodeError, match=rf"^hf://datasets/{NAME}: .*HF_TOKEN"):
        fetch(Source("docs", f"hf://datasets/{NAME}"), tmp_path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a hub serves as a data set."""
    data = tmp_path / "served"
    (data / "data").mkdir(parents=True)
    (data / "README.md").write_text("# Card\n")
    for number in range(2):
        pq.write_table(pa.table({"text": [f"text {number}"]}), data / "data" / f"train-{number}.parquet")
    (data / "queries.csv").write_text("query\nhello\n")
    with fake_hub(data, NAME, "datasets") as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        yield data  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ["data/train-0.parquet", "data/train-1.parquet", "queries.csv"]),
        ("/data", ["data/train-0.parquet", "data/train-1.parquet"]),
        ("/data/*-1.parquet", ["data/train-1.parquet"]),
        ("@main/queries.csv", ["queries.csv"]),
        ("/*.csv", ["queries.csv"]),
    ],
)
def test_files_of_a_data_set(hub: Path, tmp_path: Path, path: str, expected: list[str]) -> None:
    source, folder = Source("docs", f"hf://datasets/{NAME}{path}"), tmp_path / "copies"
    preview(source, tmp_path)
    assert fetch(source, folder) == Fetched(len(expected), noun="files")
    assert names(folder) == expected
    assert all((folder / name).read_bytes() == (hub / name).read_bytes() for name in expected)
    assert fetch(source, folder) == Fetched(None, noun="files")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://datasets/acme", "hf://datasets/ORGANIZATION/NAME"),
        (f"hf://datasets/{NAME}/none", "has no such files; it has README.md"),
        ("hf://datasets/acme/none", "HF_TOKEN"),
    ],
)
def test_a_data_set_that_is_not_there(hub: Path, tmp_path: Path, address: str, message: str) -> None:
    with pytest.raises(DarklodeError, match=message):
        fetch(Source("docs", address), tmp_path / "copies")
