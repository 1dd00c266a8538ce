"""What is read of a run, whatever state it is in; and that nothing is written to it."""

from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.browse.catalogue import Catalogue, open_catalogue
from helpers.browsing import ACME, asked, built
from helpers.finished_run import finished_run
from helpers.runs import documents, put


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_nothing_is_written_to_the_run(folder: Path) -> None:
    run = built(str(folder))
    before = files(folder)
    with open_catalogue(run) as catalogue:
        for key in ("queries", "pairs", "triplets", "rejects"):
            assert asked(catalogue, key).total
    assert files(folder) == before


def test_a_run_that_is_not_complete_has_what_it_has(folder: Path) -> None:
    run = Run(str(folder))
    put(run, "documents", documents(doc_id=["a"], text=["one"]))
    with open_catalogue(run) as catalogue:
        assert [asked(catalogue, key).total for key in ("queries", "pairs", "triplets", "rejects")] == [0, 0, 0, 0]


def test_a_run_that_was_built_anew_is_said_to_be(folder: Path) -> None:
    run = finished_run(str(folder))
    with open_catalogue(run) as catalogue:
        for file in (folder / "tables" / "documents").iterdir():
            file.unlink()
        assert asked(catalogue, "pairs").total
        with pytest.raises(ArtifactError, match="rebuilt"):
            catalogue.rows("SELECT text FROM documents ORDER BY doc_id")


def test_tenants_with_the_same_ids_stay_apart(benchmark: Catalogue) -> None:
    rows = benchmark.rows("""
        SELECT q.tenant AS asked, p.tenant AS found, count(*) AS n FROM pairs
        JOIN all_queries q USING (query) JOIN all_passages p USING (passage) GROUP BY ALL ORDER BY ALL
    """)
    assert [(row["asked"], row["found"], row["n"]) for row in rows] == [(ACME, ACME, 16), ("b/i rch", "b/i rch", 16)]


def test_kinds_of_runs_are_told_apart(benchmark: Catalogue, log: Catalogue) -> None:
    assert (benchmark.mined, log.mined) == (False, True)
