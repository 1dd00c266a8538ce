"""BM25 indexes on disk: the same hits, no second build, and nothing trusted that is damaged or half written."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import bm25s
import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.terms import Analyzer, TermSpace
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25, Index, build_index
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes, index_key
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.schemas.pooling import Bm25Settings
from helpers.bm25_texts import METHODS, random_chunks

CHUNKS = [*random_chunks(300), "", "東京都の天気予報", 'quoted "word" Ünïcode']
QUERIES = ["word5 word9 word9", "word40", "天気", "ünïcode", "absent"]
DEFAULT = Bm25Settings()


class Builder:
    """Builds the index and counts how often."""

    def __init__(self, settings: Bm25Settings = DEFAULT) -> None:
        self.terms = TermSpace([CHUNKS])
        self.settings = settings
        self.calls = 0

    def __call__(self) -> Index:
        self.calls += 1
        return build_index(self.terms, self.settings)


def same_hits(one: Index, other: Index) -> None:
    left, right = (Bm25.from_index(index, Analyzer()).search(QUERIES, 100) for index in (one, other))
    np.testing.assert_array_equal(left.rows, right.rows)
    np.testing.assert_array_equal(left.scores, right.scores)
    assert (left.rows[:4, 0] >= 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_kept_index_finds_what_a_fresh_one_finds(method: str, tmp_path: Path) -> None:
    chosen = Bm25Settings(method=method)
    build = Builder(chosen)
    first = Bm25Indexes(str(tmp_path / "indexes"), "d", tmp_path).get(chosen, build)
    again = Bm25Indexes(str(tmp_path / "indexes"), "d", tmp_path).get(chosen, build)
    assert build.calls == 1
    for index in (first, again):
        assert isinstance(index.scores["data"], np.memmap)
        same_hits(index, build())


def test_bm25s_opens_the_folder_too(tmp_path: Path) -> None:
    Bm25Indexes(str(tmp_path), "d", tmp_path).get(DEFAULT, Builder())
    theirs = bm25s.BM25.load(tmp_path / index_key(DEFAULT, "d"))
    found, _ = theirs.retrieve([["word300"]], k=1, show_progress=False)
    assert found[0, 0] == Bm25(TermSpace([CHUNKS])).search(["word300"], 1).rows[0, 0]


def test_a_corpus_searched_again_is_not_read_again(tmp_path: Path) -> None:
    def read() -> Iterator[list[str]]:
        reads.append(1)
        yield CHUNKS

    reads: list[int] = []
    hits = []
    for _ in range(2):
        corpus = Corpus(read, len(CHUNKS), tmp_path, Bm25Indexes(str(tmp_path / "kept"), "d", tmp_path))
        hits.append(corpus.bm25(Bm25Settings(stemmer="german")).search(QUERIES, 50))
    assert len(reads) == 1
    np.testing.assert_array_equal(hits[0].rows, hits[1].rows)
    np.testing.assert_array_equal(hits[0].scores, hits[1].scores)


@pytest.mark.parametrize(
    "changed",
    [{"method": "atire"}, {"k1": 1.4}, {"b": 0.7}, {"stemmer": None}, {"stemmer": "german"}, {"stop_words": False}],
)
def test_each_setting_and_the_corpus_change_the_key(changed: dict[str, object]) -> None:
    keys = {index_key(DEFAULT, "d"), index_key(Bm25Settings(**changed), "d"), index_key(DEFAULT, "e")}
    assert len(keys) == 3
    assert index_key(Bm25Settings(), "d") in keys


def test_the_stemmers_release_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = index_key(DEFAULT, "d")
    monkeypatch.setattr("darklode.pipeline.retrieve.retrievers.bm25_index.version", lambda _name: "99")
    assert index_key(DEFAULT, "d") != before


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def look_elsewhere(folder: Path) -> None:
    """Add a file outside to the manifest, with its true hash."""
    manifest, outside = folder / "manifest.json", folder.parent / "outside"
    outside.write_bytes(b"")
    files = json.loads(manifest.read_bytes()) | {"../outside": hashlib.sha256(b"").hexdigest()}
    manifest.write_text(json.dumps(files))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a flipped bit": lambda folder: flip(folder / "data.csc.index.npy"),
    "a flipped bit in the vocabulary": lambda folder: flip(folder / "vocab.index.json"),
    "cut off": lambda folder: os.truncate(folder / "indices.csc.index.npy", 400),
    "a file gone": lambda folder: (folder / "indptr.csc.index.npy").unlink(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "half a manifest": lambda folder: os.truncate(folder / "manifest.json", 60),
    "another manifest": lambda folder: (folder / "manifest.json").write_text('["x"]'),
    "a manifest that looks elsewhere": look_elsewhere,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_built_again(kind: str, tmp_path: Path) -> None:
    build = Builder()
    indexes = Bm25Indexes(str(tmp_path), "d", tmp_path)
    indexes.get(DEFAULT, build)
    DAMAGE[kind](tmp_path / index_key(DEFAULT, "d"))
    same_hits(indexes.get(DEFAULT, build), build_index(build.terms, DEFAULT))
    assert build.calls == 2
    indexes.get(DEFAULT, build)
    assert build.calls == 2, "the repaired index stands"


@pytest.mark.parametrize("chunks", [["", "..."], ["the"]])
def test_an_index_without_postings_is_not_kept(chunks: list[str], tmp_path: Path) -> None:
    corpus = Corpus(lambda: iter([chunks]), len(chunks), tmp_path, Bm25Indexes(str(tmp_path / "kept"), "d", tmp_path))
    assert (corpus.bm25(DEFAULT).search(["heat"], 5).rows == -1).all()
    assert not [path for path in (tmp_path / "kept").iterdir() if path.is_dir()]


KILLED = """
import os, pathlib, sys
sys.path.insert(0, {root!r})
import darklode.pipeline.retrieve.retrievers.bm25_index as module
from darklode.pipeline.retrieve.retrievers.bm25 import build_index
from darklode.pipeline.base.terms import TermSpace
from darklode.schemas.pooling import Bm25Settings

left = [int(sys.argv[2])]
def dying(act):
    def acting(*given, **named):
        if not left[0]:
            os._exit(9)
        left[0] -= 1
        return act(*given, **named)
    return acting
module.engines().BM25.save = dying(module.engines().BM25.save)
module.Bm25Indexes._publish = dying(module.Bm25Indexes._publish)
module.Store.write = dying(module.Store.write)
module.Bm25Indexes(sys.argv[1], "d", pathlib.Path(sys.argv[1])).get(
    Bm25Settings(), lambda: build_index(TermSpace([["heat", "wing"]]), Bm25Settings())
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_killed_save_leaves_nothing_that_is_trusted(after: int, tmp_path: Path) -> None:
    script = KILLED.format(root=str(Path(__file__).parents[4]))
    died = subprocess.run([sys.executable, "-c", script, str(tmp_path), str(after)], check=False, capture_output=True)
    assert died.returncode == 9, died.stderr.decode()
    folder, build = tmp_path / index_key(DEFAULT, "d"), Builder()
    assert not (folder / "manifest.json").exists()
    same_hits(Bm25Indexes(str(tmp_path), "d", tmp_path).get(DEFAULT, build), build_index(build.terms, DEFAULT))
    assert build.calls == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name], "leftovers are swept up"


@pytest.mark.server
def test_an_index_on_s3_is_built_once_and_fetched_once(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, store = Builder(), Store(bucket)
    scratches = [tmp_path / "one", tmp_path / "two"]
    for scratch in scratches:
        scratch.mkdir()
        same_hits(Bm25Indexes(bucket, "d", scratch).get(DEFAULT, build), build_index(build.terms, DEFAULT))
    assert build.calls == 1
    key = index_key(DEFAULT, "d")
    with monkeypatch.context() as patch:
        patch.setattr("darklode.pipeline.retrieve.retrievers.bm25_index.pafs.copy_files", None)
        Bm25Indexes(bucket, "d", scratches[1]).get(DEFAULT, build)
    store.write(f"{key}/data.csc.index.npy", b"damaged")
    fresh = tmp_path / "three"
    fresh.mkdir()
    same_hits(Bm25Indexes(bucket, "d", fresh).get(DEFAULT, build), build_index(build.terms, DEFAULT))
    assert build.calls == 2
