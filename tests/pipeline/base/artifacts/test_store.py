"""Files below a root: whole or not there, and no root that carries a key."""

import os
import pickle
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run, Store
from darklode.pipeline.base.artifacts.store import ReadOnlyStore, s3_failure
from darklode.pipeline.base.artifacts.temporary_files import is_temporary, machine_id
from darklode.pipeline.base.errors import ArtifactError, NotWritable
from helpers.staged import killed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "run"))


def test_what_is_written_is_read(store: Store) -> None:
    store.write("a/b/c.bin", b"\x00\xff")
    assert (store.read("a/b/c.bin"), store.size("a/b/c.bin")) == (b"\x00\xff", 2)
    store.write("a/b/c.bin", b"")
    assert (store.read("a/b/c.bin"), store.size("a/b/c.bin")) == (b"", 0)


def test_an_object_that_cannot_be_read_is_an_empty_one(store: Store) -> None:
    for data, found in ((b'{"a": [1]}', {"a": [1]}), (b"[1]", {}), (b'{"a"', {}), (b"\xff", {}), (b"", {})):
        store.write("facts.json", data)
        assert store.read_object("facts.json") == found
    assert store.read_object("nowhere.json") == {}


def test_compressed_files_are_read_as_they_are(store: Store) -> None:
    store.write("plain.gz", b"no gzip at all")
    assert store.read("plain.gz") == b"no gzip at all"


def test_what_is_not_there_is_nothing(store: Store) -> None:
    assert store.read("no/such") is None
    assert store.size("no/such") is None
    assert store.sizes("no") == {}
    assert store.folders("no") == []
    store.delete("no/such")


def test_listings_are_of_one_folder_alone(store: Store) -> None:
    for name in ("t/b/2.x", "t/a/1.x", "t/a/deep/3.x", "t/4.x"):
        store.write(name, name.encode())
    assert store.sizes("t/a") == {"t/a/1.x": 7}
    assert store.sizes("t") == {"t/4.x": 5}
    assert store.folders("t") == ["a", "b"]
    store.delete("t/a/1.x")
    assert store.sizes("t/a") == {}


def test_a_local_folder_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Store("run").url == str(tmp_path / "run")
    assert Store("~/run").local == tmp_path / "home" / "run"


DIE_WRITING = """
from pathlib import Path
from darklode.pipeline.base.artifacts import Store
{patch}
Store(sys.argv[1]).write("t/x.parquet", b"new" * 100_000)
"""

MOMENTS = {"before the file is on disk": "os.fsync = kill", "before the file has its name": "Path.replace = kill"}


@pytest.mark.parametrize(
    ("moment", "before"), [("before the file is on disk", b"old"), ("before the file has its name", None)]
)
def test_a_killed_write_leaves_what_was_there(store: Store, moment: str, before: bytes | None) -> None:
    if before is not None:
        store.write("t/x.parquet", before)
    killed(DIE_WRITING.format(patch=MOMENTS[moment]), store.url)
    assert store.read("t/x.parquet") == before
    assert [name for name in store.sizes("t") if name.endswith(".parquet")] == ["t/x.parquet"] * (before is not None)
    store.write("t/x.parquet", b"again")
    assert store.read("t/x.parquet") == b"again"


def test_readers_never_see_half_a_file(store: Store) -> None:
    pages = [letter * 200_000 for letter in (b"a", b"b")]
    store.write("page", pages[0])
    done = threading.Event()

    def turn() -> None:
        for number in range(60):
            store.write("page", pages[number % 2])
        done.set()

    writer = threading.Thread(target=turn)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(store.read("page"))
    writer.join()
    assert seen <= set(pages)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:SECRET@bucket/run",
        "s3://AKIA:SE/SECRET@bucket/run",
        "s3://SECRET@bucket/run",
        "s3://bucket/run?secret_key=SECRET",
        "s3://bucket/run#SECRET",
        "https://user:SECRET@host/run",
        "gs://bucket/SECRET",
        "file:///srv/SECRET",
        "s3://",
        "s3:///SECRET",
    ],
)
def test_an_address_with_keys_or_of_another_kind_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ArtifactError) as refused:
        Store(url)
    assert "SECRET" not in str(refused.value)
    assert "s3://" in str(refused.value)


@pytest.mark.parametrize(
    ("url", "scheme"), [("gs://bucket/run", "gs"), ("file:///run", "file"), ("abfs://a/b", "abfs")]
)
def test_another_scheme_is_named_with_what_to_use(url: str, scheme: str) -> None:
    with pytest.raises(
        ArtifactError, match=f"{scheme}:// is not supported for runs; use a folder or s3://bucket/prefix"
    ):
        Store(url)


def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are flushed to disk from now on, in order."""
    flush, paths = os.fsync, list[str]()

    def noticed(file: int) -> None:
        paths.append(
            re.sub(r"([.][0-9a-f]{8}){2}(?=[.]\d+[.]unlocked[.]tmp)", "", str(Path(f"/proc/self/fd/{file}").readlink()))
        )
        flush(file)

    monkeypatch.setattr(os, "fsync", noticed)
    return paths


def test_names_of_new_folders_are_on_disk_before_what_lies_in_them(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, root = flushed(monkeypatch), str(tmp_path / "run")
    store.write("t/a/x.bin", b"1")
    assert paths == [str(tmp_path), root, f"{root}/t", f"{root}/t/a/.x.bin.{os.getpid()}.unlocked.tmp", f"{root}/t/a"]
    paths.clear()
    store.write("t/a/y.bin", b"1")
    assert paths == [f"{root}/t/a/.y.bin.{os.getpid()}.unlocked.tmp", f"{root}/t/a"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("only root mounts")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_said_and_nothing_is_left_of_the_write(small_disk: Path) -> None:
    store = Store(str(small_disk / "run"))
    store.write("a.bin", b"1")
    with pytest.raises(NotWritable, match=r"run/t/b.bin cannot be written \(No space left on device\); free space"):
        store.write("t/b.bin", bytes(2_000_000))
    assert [path.name for path in small_disk.rglob("*") if path.is_file()] == ["a.bin"]
    store.write("t/b.bin", bytes(1000))


def test_a_disk_that_is_read_only_is_said(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for act in (lambda run: run.store.write("a", b""), lambda run: run.store.prepare()):
        with pytest.raises(NotWritable, match=r"cannot be written \(Read-only file system\); choose a writable folder"):
            act(Run(str(small_disk / "run")))
    with pytest.raises(NotWritable, match="Read-only file system"), Run(str(small_disk)).lock():
        pass


TOO_LARGE = """
import resource
from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import NotWritable
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    Store(sys.argv[1]).write("big.bin", bytes(2000))
except NotWritable as error:
    assert "cannot be written (File too large); raise the limit on file sizes" in str(error), error
    kill()
"""


def test_a_file_that_is_too_large_is_said(store: Store) -> None:
    killed(TOO_LARGE, store.url)
    assert store.root_names() == []
    assert list(Path(store.url).iterdir()) == []


@pytest.mark.parametrize("name", ["file/x", "folder", "long" * 100])
def test_what_lies_in_the_way_is_said(store: Store, name: str) -> None:
    store.write("file", b"")
    store.write("folder/x", b"")
    with pytest.raises(NotWritable, match="cannot be written"):
        store.write(name, b"")
    assert sorted(store.sizes("", recursive=True)) == ["file", "folder/x"]


@pytest.mark.slow
def test_what_killed_writes_left_goes_and_what_others_are_writing_stays(store: Store) -> None:
    for folder in ("", "manifests/", "review/"):
        killed(
            DIE_WRITING.format(patch="Path.replace = kill").replace("t/x.parquet", f"{folder}settings.yaml"), store.url
        )
    ours = f".settings.yaml.01234567.{machine_id()}.{os.getpid()}.unlocked.tmp"
    Path(store.url, ours).write_text("half")
    assert len(list(Path(store.url).rglob("*.tmp"))) == 4
    with Run(store.url).lock():
        assert temporaries(store) == [ours]


def temporaries(store: Store) -> list[str]:
    return sorted(path.name for path in Path(store.url).rglob("*.tmp"))


GONE = 2**22 + 1  # above the largest process number
ELSEWHERE = f".settings.yaml.01234567.89abcdef.{GONE}"


def test_nothing_is_deleted_before_the_lock_is_held(store: Store) -> None:
    with Run(store.url).lock():
        for lease in ("fedcba98", "unlocked"):
            store.write(f"{ELSEWHERE}.{lease}.tmp", b"half")
            store.write(f".x.01234567.{machine_id()}.{GONE}.{lease}.tmp", b"half")
        before = temporaries(store)
        with pytest.raises(ArtifactError, match=r"another process .*is writing"), Run(store.url).lock():
            pass
        assert temporaries(store) == before


@pytest.mark.parametrize(
    ("name", "days", "stays"),
    [
        (f"{ELSEWHERE}.unlocked.tmp", 0, True),  # such as a review server's on another machine
        (f"{ELSEWHERE}.unlocked.tmp", 2, False),
        (f"{ELSEWHERE}.fedcba98.tmp", 0, False),  # its writer held the lock, and no longer does
        (f".settings.yaml.01234567.{GONE}.tmp", 0, True),  # of an earlier version: of which machine is not known
        (f".settings.yaml.01234567.{GONE}.tmp", 2, False),
        (f".settings.yaml.{GONE}.tmp", 2, False),
        ("settings.yaml.tmp", 2, True),
        (".notes.tmp", 2, True),
    ],
)
def test_the_locks_holder_deletes_what_no_process_can_be_writing(
    store: Store, name: str, days: int, *, stays: bool
) -> None:
    store.write(f"review/{name}", b"half")
    then = time.time() - days * 86_400
    os.utime(store.path(f"review/{name}"), (then, then))
    with Run(store.url).lock():
        assert temporaries(store) == [name] * stays


def test_what_is_written_under_a_lock_names_its_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names, replace = list[str](), Path.replace

    def noted(path: Path, target: Path) -> Path:
        names.append(path.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", noted)
    run = Run(store.url)
    for _ in range(2):
        with run.lock():
            run.store.write("a", b"")
            pickle.loads(pickle.dumps(run.store)).write("b", b"")  # as a worker on another machine does
    run.store.write("c", b"")
    leases = [name.split(".")[-2] for name in names]
    assert [lease == "unlocked" for lease in leases] == [False, True, False, True, True]
    assert leases[0] != leases[2]
    assert all(is_temporary(name) for name in names)


def test_many_write_one_file_at_once_and_each_whole(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.write("verdicts/judge.json", b"x" * 4000), range(64)))
    assert store.read("verdicts/judge.json") == b"x" * 4000
    assert not list(Path(store.url).rglob("*.tmp"))


def test_an_untouched_store_is_read_and_never_written(tmp_path: Path) -> None:
    Store(str(tmp_path)).write("a", b"1")
    store = ReadOnlyStore(str(tmp_path))
    assert store.read("a") == b"1"
    with pytest.raises(NotWritable, match="opened read-only"):
        store.write("a", b"2")
    assert store.read("a") == b"1"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "When getting information for bucket 'b': AWS Error NETWORK_CONNECTION during HeadBucket operation: "
            "curlCode: 7, Could not connect to server",
            r"S3 at localhost:9 cannot be reached \(curlCode: 7, Could not .* check the network, AWS_ENDPOINT_URL",
        ),
        (
            "When listing objects: AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access\nDenied",
            r"S3 refused ListObjectsV2 \(ACCESS_DENIED: Access Denied\); check the bucket, AWS_REGION and the keys",
        ),
        (
            "When reading: AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No response body.",
            r"S3 refused HeadObject \(UNKNOWN: No response body",
        ),
        ("disk on fire", None),
    ],
)
def test_an_error_of_s3_is_a_sentence(monkeypatch: pytest.MonkeyPatch, error: str, said: str | None) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://name:secret@localhost:9")
    sentence = s3_failure(OSError(error))
    if said is None:
        assert sentence is None
    else:
        assert sentence is not None
        assert re.match(said, sentence)
    assert s3_failure(ValueError(error)) is None
