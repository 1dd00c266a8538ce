"""The seven embedded retrievers: odd corpora, determinism, and what they find."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.collections_io import COLLECTIONS, read_collection
from pipeline.retrievers.corpus import Corpus
from pipeline.retrievers.dense import store_vectors
from pipeline.retrievers.embedded import EMBEDDED
from pipeline.retrievers.port import Hits

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
sys.path[:0] = [{root!r}, {here!r}]
from test_embedded import VARIED, search_all
with tempfile.TemporaryDirectory() as folder:
    for name, hits in search_all(VARIED, ["wing flutter", "heated panel"], 24, pathlib.Path(folder)).items():
        print(name, hashlib.sha256(hits.rows.tobytes() + hits.scores.tobytes()).hexdigest())
"""


def test_another_process_finds_the_same() -> None:
    script = DIGEST.format(root=str(Path(__file__).parents[3]), here=str(Path(__file__).parent))
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


def test_a_wrong_number_of_chunks_is_an_error(tmp_path: Path) -> None:
    corpus = Corpus(lambda: iter([["wing"]]), 2, tmp_path)
    with pytest.raises(ValueError, match="n_chunks is 2, the batches held 1"):
        _ = corpus.terms


@pytest.mark.parametrize(("blocks", "message"), [((2, 2), "more than 3"), ((2,), "2 of 3")])
def test_vectors_must_be_complete(blocks: tuple[int, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        store_vectors((np.ones((n, 2)) for n in blocks), 3, 2, tmp_path / "vectors.npy")


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
