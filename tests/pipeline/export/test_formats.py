from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export import formats
from darklode.pipeline.export.formats import EXPORTS, export, format_of
from darklode.pipeline.export.kinds import Format
from darklode.schemas.tables import QRELS, TABLES
from helpers.finished_run import finished_run
from helpers.runs import put


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def finished(tmp_path: Path) -> Run:
    return finished_run(str(tmp_path / "run's [folder]"))


@pytest.mark.parametrize("name", EXPORTS.own())
def test_the_same_run_gives_the_same_bytes_and_says_which_files(name: str, finished: Run, tmp_path: Path) -> None:
    first = export(finished, name, tmp_path / "it's one")
    export(finished, name, tmp_path / "below" / "two")
    assert first == sorted(tmp_path / "it's one" / file for file in contents(tmp_path / "it's one"))
    assert contents(tmp_path / "it's one") == contents(tmp_path / "below" / "two")


@pytest.mark.parametrize("name", EXPORTS.own())
def test_a_format_reads_no_more_than_it_names(name: str, finished: Run, tmp_path: Path) -> None:
    small = Run(str(tmp_path / "small"))
    for table in format_of(name).tables:
        put(small, table, finished.tables(table).read(table))
    export(small, name, tmp_path / "small out")
    export(finished, name, tmp_path / "out")
    assert contents(tmp_path / "small out") == contents(tmp_path / "out")


def test_an_unknown_format_is_refused_with_the_nearest(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"'biers'; did you mean beir\?$"):
        export(finished, "biers", tmp_path / "out")
    with pytest.raises(ExportError, match=r"'xyz'; the formats are beir"):
        export(finished, "xyz", tmp_path / "out")


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(finished: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    export(finished, "beir", out)
    before = contents(out)
    with pytest.raises(ExportError, match="not an empty folder"):
        export(finished, "trec", out)
    assert contents(out) == before
    with pytest.raises(ExportError, match="not an empty folder"):
        export(finished, "trec", out / "corpus.jsonl")
    with pytest.raises(ExportError, match="cannot write"):
        export(finished, "trec", out / "corpus.jsonl" / "below")


@pytest.mark.parametrize("name", EXPORTS.own())
def test_a_run_without_the_tables_or_without_a_positive_is_refused(name: str, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=f"lacks .*{format_of(name).tables[-1]}.*darklode build"):
        export(run, name, tmp_path / "out")
    for table in format_of(name).tables:
        put(run, table, TABLES[table].empty())
    with pytest.raises(ExportError, match=r"the run has no (positive|triplet)"):
        export(run, name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_judged_zeros_alone_are_no_positives(run: Run, tmp_path: Path) -> None:
    for table in ("chunks", "queries"):
        put(run, table, TABLES[table].empty())
    put(
        run,
        "qrels",
        QRELS.rows({"tenant": ["a"], "query_id": ["q"], "chunk_id": ["c"], "relevance": [0], "source": ["judge"]}),
    )
    with pytest.raises(ExportError, match="no positive"):
        export(run, "beir", tmp_path / "out")


def test_a_broken_export_leaves_nothing_behind(finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_tables: Tables, folder: Path) -> None:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(formats, "format_of", lambda _name: Format(("qrels",), broken))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        export(finished, "beir", tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
