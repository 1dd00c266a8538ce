"""Run files as retrievers: which lines count, in which order, and where the others go."""

import gzip
from pathlib import Path

import pytest

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.kinds.run_file import KIND
from darklode.pipeline.retrieve.retrievers.run_file import UNKNOWN_TEXT, UNRANKED_QUERY, RunFileRetriever
from helpers.external import CHUNK_TEXTS, external_run, rankings, rejects
from helpers.runs import Run, read


def run_file(folder: Path, *lines: str) -> Path:
    file = folder / "engine.run.gz"
    file.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return file


def corpus_of(run: Run, scratch: Path, *tables: str) -> Corpus:
    chunks = TenantChunks(run.tables(*tables), "acme")
    return Corpus(chunks.batches, chunks.n, scratch, None, chunks)


LINES = [
    "acme/q1 Q0 faq#a 3 1.0 engine",
    "acme/q1 Q0 manual 1 9.5 engine",
    "acme/q1 Q0 faq#b 2 1.0 engine",
    "q2 Q0 acme/faq 1 -2 engine",
    "q2 Q0 odd%20id 1 -3 engine",
    "zeta/q1 Q0 manual 1 1 engine",
]


def test_documents_count_for_their_best_chunks_in_the_order_of_trec_eval(tmp_path: Path) -> None:
    run, file = external_run(str(tmp_path / "run")), run_file(tmp_path, *LINES)
    found = rankings(run, {"engine": KIND(path=str(file))})
    assert found == {
        "acme/q1": ["manual#b", "faq#b", "faq#a"],
        "acme/q2": ["faq#a", "odd id#a"],
        "zeta/q1": ["manual#a"],
    }
    scores = [row["score"] for row in read(run, "rankings") if row["query_id"] == "q1" and row["tenant"] == "acme"]
    assert scores == [9.5, 1.0, 1.0]


def test_a_document_may_count_for_all_its_chunks(tmp_path: Path) -> None:
    run, file = external_run(str(tmp_path / "run")), run_file(tmp_path, *LINES)
    found = rankings(run, {"engine": KIND(path=str(file), map_documents="all")})
    assert found["acme/q1"] == ["manual#a", "manual#b", "faq#b", "faq#a"]
    assert found["acme/q2"] == ["faq#a", "faq#b", "odd id#a"]


def test_a_list_ends_at_the_depth_of_the_search(tmp_path: Path) -> None:
    run, file = external_run(str(tmp_path / "run")), run_file(tmp_path, *LINES)
    assert rankings(run, {"engine": KIND(path=str(file))}, depth=1)["acme/q1"] == ["manual#b"]


def test_a_chunk_that_is_ranked_twice_keeps_its_better_rank(tmp_path: Path) -> None:
    run = external_run(str(tmp_path / "run"))
    file = run_file(tmp_path, "acme/q1 Q0 manual 1 3 x", "acme/q1 Q0 faq#b 2 2 x", "acme/q1 Q0 manual#b 3 1 x")
    assert rankings(run, {"engine": KIND(path=str(file))})["acme/q1"] == ["manual#b", "faq#b"]


def test_lines_that_match_nothing_and_queries_without_lines_are_rejects(tmp_path: Path) -> None:
    run = external_run(str(tmp_path / "run"))
    lines = [
        "q2 Q0 faq#a 1 2 x",
        "only three fields",
        "q2 Q0 faq#b 2 high x",
        "q2 Q0 faq#a 3 1 x",
        "q1 Q0 manual 1 1 x",
        "q9 Q0 manual 1 1 x",
        "acme/q1 Q0 elsewhere 1 1 x",
        "zeta/q1 Q0 faq 1 1 x",
    ]
    found = rankings(run, {"engine": KIND(path=str(run_file(tmp_path, *lines)))})
    assert found == {"acme/q2": ["faq#a"]}
    file = {"file": "engine.run.gz"}
    expected = [
        {"tenant": "acme", "id": "only three fields", "line": 2, "reason": "not 6 fields"},
        {"tenant": "acme", "id": "q2", "line": 3, "reason": "score is not a number"},
        {"tenant": "acme", "id": "q2", "line": 4, "reason": "document repeated"},
        {"tenant": "acme", "id": "q1", "line": 5, "reason": "query of several tenants: write tenant/query_id"},
        {"tenant": "acme", "id": "q9", "line": 6, "reason": "not a query of the run"},
        {"tenant": "acme", "id": "q1", "line": 7, "reason": UNKNOWN_TEXT},
        {"tenant": "acme", "id": "q3", "line": None, "reason": UNRANKED_QUERY},
        {"tenant": "zeta", "id": "q1", "line": 8, "reason": UNKNOWN_TEXT},
    ]
    assert [{key: row[key] for key in (*expected[0], "file")} for row in rejects(run)] == [
        row | file for row in expected
    ]


def test_an_unchanged_file_is_not_read_again_and_a_changed_one_is(tmp_path: Path) -> None:
    run, file = external_run(str(tmp_path / "run")), run_file(tmp_path, *LINES)
    kind = KIND(path=str(file))
    before = kind.identity
    rankings(run, {"engine": kind})
    assert kind.identity == before
    moved = file.rename(tmp_path / "moved.gz")
    assert KIND(path=str(moved)).identity == before
    moved.write_bytes(gzip.compress(b"q2 Q0 faq#b 1 1 x\n"))
    assert KIND(path=str(moved)).identity != before


def test_a_missing_file_is_found_before_a_run_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    kind = KIND(path=str(tmp_path / "nowhere"))
    assert kind.missing() == [f"there is no run file {tmp_path / 'nowhere'}; correct its path"]
    assert kind.identity["path"] is None
    run = external_run(str(tmp_path / "run"))
    with pytest.raises(InputError, match="cannot be read"):
        rankings(run, {"engine": kind})


def test_a_file_of_another_format_is_an_error(tmp_path: Path) -> None:
    run, file = external_run(str(tmp_path / "run")), run_file(tmp_path, "query,docid,rating", "reset,manual,3")
    with pytest.raises(InputError, match="has no valid line among 2"):
        rankings(run, {"engine": KIND(path=str(file))})


def test_queries_without_ids_cannot_be_ranked_by_a_file(tmp_path: Path) -> None:
    run, file = external_run(str(tmp_path / "run")), run_file(tmp_path, *LINES)
    with pytest.raises(InputError, match="ranks queries by id"):
        RunFileRetriever("engine", file, corpus_of(run, tmp_path, "chunks"), "best")


def test_a_text_that_the_file_does_not_rank_has_no_hits(tmp_path: Path) -> None:
    run, file = external_run(str(tmp_path / "run")), run_file(tmp_path, *LINES)
    retriever = RunFileRetriever("engine", file, corpus_of(run, tmp_path, "chunks", "queries"), "best")
    assert retriever.search(["reset the router", "unheard of"], 2).rows.tolist() == [[1, 3], [-1, -1]]
    assert retriever.search([], 2).rows.shape == (0, 2)
    assert len(CHUNK_TEXTS) == 6
