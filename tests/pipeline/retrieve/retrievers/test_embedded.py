"""The seven embedded retrievers: odd corpora, determinism, what they find, and feedback against its formula."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.collections_io import COLLECTIONS, read_collection
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.embedded import Feedback
from darklode.pipeline.retrieve.retrievers.kinds import own_retrievers
from darklode.pipeline.retrieve.retrievers.port import Hits
from darklode.pipeline.retrieve.retrievers.topk import fixed_point
from helpers.runs import PYTHONPATH

EMBEDDED = own_retrievers()

TOPICS = {
    "wing": "The wing flutters under aerodynamic load; flutter speed depends on wing stiffness.",
    "heat": "Heat flows through the slab; thermal conduction heats the composite panel.",
    "queue": "Messages wait in the queue until a worker takes the message and acknowledges it.",
    "login": "Reset your password on the login page; the password link expires.",
}
VARIED = [f"{name} part {i}\n\n{text} Detail {i * 7 % 5}." for i in range(6) for name, text in TOPICS.items()]
ODD: dict[str, list[str]] = {
    "one chunk": ["wing flutter"],
    "three chunks": ["wing flutter", "heat slab", "password login"],
    "all the same": ["wing flutter at speed"] * 5,
    "empty texts": ["", "\n\n", "wing flutter", ""],
    "nothing at all": ["", "\n", "..."],
    "single words": ["wing", "heat", "wing", "queue"],
    "stop words only": ["the of and", "to be or not"],
    "no spaces": ["東京都の天気予報", "大阪で検索する", "การค้นหาข้อมูล"],
}


def corpus_of(chunks: Sequence[str], scratch: Path, batch: int = 3) -> Corpus:
    return Corpus(lambda: (chunks[i : i + batch] for i in range(0, len(chunks), batch)), len(chunks), scratch)


def search_all(chunks: Sequence[str], queries: list[str], depth: int, scratch: Path) -> dict[str, Hits]:
    corpus = corpus_of(chunks, scratch)
    return {name: build(corpus).search(queries, depth) for name, build in EMBEDDED.items()}


def test_there_are_seven_and_they_know_their_names(tmp_path: Path) -> None:
    corpus = corpus_of(VARIED, tmp_path)
    assert len(EMBEDDED) == 7
    assert next(iter(EMBEDDED)) == "bm25"
    assert [build(corpus).name for build in EMBEDDED.values()] == list(EMBEDDED)


@pytest.mark.parametrize("kind", ODD)
def test_odd_corpora_give_well_formed_hits(kind: str, tmp_path: Path) -> None:
    chunks = ODD[kind]
    queries = ["wing flutter", "unheardof", "", "the", "東京の天気", "หา"]
    for name, hits in search_all(chunks, queries, 420, tmp_path).items():
        assert hits.rows.shape == hits.scores.shape == (len(queries), len(chunks)), name
        assert (hits.rows.dtype, hits.scores.dtype) == (np.int64, np.float32), name
        np.testing.assert_array_equal(hits.rows < 0, np.isnan(hits.scores), err_msg=name)
        for rows, scores in zip(hits.rows, hits.scores, strict=True):
            found = rows >= 0
            assert (np.diff(found.astype(int)) <= 0).all(), f"{name}: padding comes last"
            assert len(set(rows[found])) == found.sum(), f"{name}: a chunk came twice"
            order = list(zip(-scores[found], rows[found], strict=True))
            assert order == sorted(order), f"{name}: best first, ties by row"


@pytest.mark.parametrize("query", ["unheardof zzz", "", "the of"])
def test_an_unknown_query_finds_nothing(query: str, tmp_path: Path) -> None:
    for name, hits in search_all(VARIED, [query], 10, tmp_path).items():
        assert (hits.rows == -1).all(), name


def test_an_empty_chunk_is_never_found(tmp_path: Path) -> None:
    for name, hits in search_all([*VARIED, "", "\n\n"], ["wing flutter"], 100, tmp_path).items():
        assert not np.isin([len(VARIED), len(VARIED) + 1], hits.rows).any(), name


@pytest.mark.parametrize(("query", "topic"), [("wing flutter speed", "wing"), ("forgot my password", "login")])
def test_all_find_the_topic(query: str, topic: str, tmp_path: Path) -> None:
    for name, hits in search_all(VARIED, [query], 6, tmp_path).items():
        assert all(VARIED[row].startswith(topic) for row in hits.rows[0]), name


def test_no_spaces_no_problem(tmp_path: Path) -> None:
    for name, hits in search_all(ODD["no spaces"], ["天気予報", "ค้นหา"], 1, tmp_path).items():
        if name.startswith(("bm25", "lsa", "character")):
            assert hits.rows.ravel().tolist() == [0, 2], name


def test_batches_do_not_change_a_hit(tmp_path: Path) -> None:
    queries = ["wing flutter", "heated panel", "queue worker"]
    for name, build in EMBEDDED.items():
        one, two = (build(corpus_of(VARIED, tmp_path, batch)).search(queries, 24) for batch in (1, 100))
        np.testing.assert_array_equal(one.rows, two.rows, err_msg=name)
        np.testing.assert_array_equal(one.scores, two.scores, err_msg=name)


DIGEST = """
import hashlib, pathlib, sys, tempfile
sys.path[:0] = {paths!r}
from test_embedded import VARIED, search_all

with tempfile.TemporaryDirectory() as folder:
    for name, hits in search_all(VARIED, ["wing flutter", "heated panel"], 24, pathlib.Path(folder)).items():
        print(name, hashlib.sha256(hits.rows.tobytes() + hits.scores.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_another_process_finds_the_same() -> None:
    script = DIGEST.format(paths=[*PYTHONPATH.split(os.pathsep), str(Path(__file__).parent)])
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == 7


class Axes:
    """An encoder of three words, one axis each."""

    encoder_id = "axes"
    dimensions = 3

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[text == word for word in "abc"] for text in texts], dtype=np.float32)

    encode_documents = encode_queries


class FixedSeeds:
    """Finds the same seeds for every query."""

    name = "fixed"

    def __init__(self, rows: list[int], scores: list[float]) -> None:
        self._hits = (np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32))

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        return Hits(*(np.tile(part, (len(queries), 1)) for part in self._hits))


VECTORS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0]], dtype=np.float32)


def test_the_query_moves_by_the_formula() -> None:
    seeds = FixedSeeds([1, 2, -1], [3.0, 1.0, np.nan])
    hits = Feedback("x", Axes(), fixed_point(VECTORS), seeds).search(["a"], 4)
    mean = np.array([0, 3, 1]) / np.sqrt(10)
    query = np.array([1, 0, 0]) + 2 * mean
    expected = VECTORS @ (query / np.linalg.norm(query))
    assert hits.rows[0].tolist() == np.argsort(-expected).tolist() == [3, 1, 0, 2]
    np.testing.assert_allclose(hits.scores[0], np.sort(expected)[::-1], atol=5e-4)


def test_without_seeds_the_query_stays_and_without_either_nothing_is_found() -> None:
    retriever = Feedback("x", Axes(), fixed_point(VECTORS), FixedSeeds([-1, -1], [np.nan, np.nan]))
    hits = retriever.search(["b", "unknown"], 2)
    assert hits.rows.tolist() == [[1, 3], [-1, -1]]


def test_the_last_chunk_is_no_stand_in_for_a_missing_seed() -> None:
    vectors = fixed_point(VECTORS[:3])
    found = [
        Feedback("x", Axes(), vectors, FixedSeeds(rows, scores)).search(["a"], 3).scores.tolist()
        for rows, scores in (([1], [2.0]), ([1, -1], [2.0, np.nan]))
    ]
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.skipif(not (COLLECTIONS / "cranfield").exists(), reason="the test collections are not here")
def test_the_pool_of_cranfield_holds_what_it_should(tmp_path: Path) -> None:
    cranfield = read_collection("cranfield")
    hits = search_all(cranfield.chunks, cranfield.queries, 60, tmp_path)
    recalls, sizes = [], []
    for query, relevant in enumerate(cranfield.relevant):
        pool = np.unique(np.concatenate([found.rows[query] for found in hits.values()]))
        pool = pool[pool >= 0]
        recalls.append(np.isin(relevant, cranfield.owners[pool]).mean())
        sizes.append(len(pool))
    assert np.mean(recalls) >= 0.80
    assert np.mean(sizes) <= 210
