"""Exports, whole and without the labels of the test split; of these a scan: no line or row of a public folder names a
test query together with a chunk that is relevant to it."""

import json
from collections.abc import Iterator
from pathlib import Path
from unicodedata import category
from urllib.parse import quote

import ir_measures
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export import formats
from darklode.pipeline.export.formats import EXPORTS, export, format_of
from darklode.pipeline.export.kinds import Format
from darklode.schemas.label_tables import QRELS
from darklode.schemas.tables import TABLES
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, SPLITS, TENANTS, WITHOUT_POSITIVES, finished_run
from helpers.runs import put

JUDGMENTS = [name for name in EXPORTS.own_kinds() if "level" in format_of(name).options]
"""Formats of one tenant with its own ids: see `test_judgment_lists`."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that is exported, and left alone."""
    return finished_run(str(tmp_path_factory.mktemp("finished") / "run's [folder]"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The same run of each tenant alone."""
    return {one: finished_run(str(tmp_path_factory.mktemp("alone") / "run"), (one,)) for one in TENANTS}


def tenant_of(name: str) -> str | None:
    """The tenant to export: a format of judgments writes one."""
    return TENANTS[0] if name in JUDGMENTS else None


@pytest.mark.parametrize("name", EXPORTS.own_kinds())
def test_the_same_run_gives_the_same_bytes_and_says_which_files(name: str, finished: Run, tmp_path: Path) -> None:
    first = export(finished, name, tmp_path / "it's one", tenant=tenant_of(name))
    export(finished, name, tmp_path / "below" / "two", tenant=tenant_of(name))
    assert first == sorted(tmp_path / "it's one" / file for file in contents(tmp_path / "it's one"))
    assert contents(tmp_path / "it's one") == contents(tmp_path / "below" / "two")


@pytest.mark.parametrize("name", EXPORTS.own_kinds())
def test_a_format_reads_no_more_than_it_names(name: str, finished: Run, tmp_path: Path) -> None:
    small = Run(str(tmp_path / "small"))
    for table in format_of(name).tables:
        put(small, table, finished.tables(table).read(table))
    export(small, name, tmp_path / "small out", tenant=tenant_of(name))
    export(finished, name, tmp_path / "out", tenant=tenant_of(name))
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


@pytest.mark.parametrize("name", EXPORTS.own_kinds())
def test_a_run_without_the_tables_or_without_a_positive_is_refused(name: str, run: Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=f"has no .*{format_of(name).tables[-1]}.*darklode build"):
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


WITHHOLDABLE = [name for name in EXPORTS.own_kinds() if format_of(name).test_labels and name not in JUDGMENTS]

Pair = tuple[str, int, int]
"""Tenant, query and chunk."""

TEXTS = {0: "one\n\n- a list\ttab", 2: "naïve ☃ \\n"}
"""The relevant chunks."""


def safe(name: str, also: str = "") -> str:
    """An id as exported: see `define_ids`."""
    unsafe = {character for character in name if category(character) in {"Cc", "Zs", "Zl", "Zp"}} | set('"%' + also)
    return "".join(quote(character, safe="") if character in unsafe else character for character in name)


def spellings(text: str) -> set[str]:
    """A text as it is, on one line, and as JSON or a list shows it."""
    return {text, " ".join(text.split()), json.dumps(text, ensure_ascii=False)[1:-1], repr([text])[2:-2]}


def pairs(split: str) -> dict[Pair, tuple[set[str], set[str]]]:
    """Each query of a split with each relevant chunk, and what both may look like: exported ids or texts."""
    asked = [place for place, own in enumerate(SPLITS) if own == split and place != WITHOUT_POSITIVES]
    return {
        (tenant, query, chunk): (
            {f"{safe(tenant, '/')}/{safe(QUERY_IDS[query])}", *spellings(QUERY_TEXTS[query])},
            {f"{safe(tenant, '/')}/{safe(CHUNK_IDS[chunk])}", *spellings(TEXTS[chunk])},
        )
        for tenant in TENANTS
        for query in asked
        for chunk in TEXTS
    }


def records(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each line of a text file and each row of a Parquet file."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".parquet":
            yield from ((path, " ".join(map(str, row.values()))) for row in pq.read_table(path).to_pylist())
        elif path.is_file():
            yield from ((path, line) for line in path.read_text(encoding="utf8").split("\n"))


def leaks(folder: Path, split: str = "test") -> dict[str, set[Pair]]:
    """The files in which the scan finds pairs, with the pairs."""
    found: dict[str, set[Pair]] = {}
    for path, record in records(folder):
        for pair, (queries, chunks) in pairs(split).items():
            if any(query in record for query in queries) and any(chunk in record for chunk in chunks):
                found.setdefault(path.name, set()).add(pair)
    return found


LABELS = {
    "beir": {"test.tsv"},
    "trec": {"qrels.test.txt", "bm25.txt", "..%2Fdense%20one.txt"},
    "mteb": {"test.parquet"},
    "msmarco": {"qrels.test.tsv"},
}


@pytest.mark.parametrize("name", WITHHOLDABLE)
def test_no_pair_of_the_test_split_is_in_the_public_folder(name: str, finished: Run, tmp_path: Path) -> None:
    export(finished, name, tmp_path / "whole")
    assert set(leaks(tmp_path / "whole")) == LABELS[name]
    files = export(finished, name, tmp_path / "public", tmp_path / "kept")
    assert leaks(tmp_path / "public") == {}
    assert leaks(tmp_path / "kept") == leaks(tmp_path / "whole")
    assert set.union(*leaks(tmp_path / "kept").values()) == set(pairs("test"))
    assert set(leaks(tmp_path / "kept", "train")) <= {"triples.train.tsv", "qidpidtriples.train.tsv"}
    assert leaks(tmp_path / "public", "train") == leaks(tmp_path / "whole", "train") != {}
    assert files == sorted(path for to in ("public", "kept") for path in (tmp_path / to).rglob("*") if path.is_file())


@pytest.mark.parametrize("name", [name for name in EXPORTS.own_kinds() if not format_of(name).test_labels])
def test_a_format_without_test_labels_has_none_and_withholds_none(name: str, finished: Run, tmp_path: Path) -> None:
    export(finished, name, tmp_path / "whole")
    assert leaks(tmp_path / "whole") == {}
    assert leaks(tmp_path / "whole", "train") != {}
    with pytest.raises(ExportError, match=f"{name} has no labels of the test split"):
        export(finished, name, tmp_path / "public", tmp_path / "kept")


def test_the_withheld_labels_score_as_the_whole_ones_do(finished: Run, tmp_path: Path) -> None:
    export(finished, "trec", tmp_path / "whole")
    export(finished, "trec", tmp_path / "public", tmp_path / "kept")
    scores = []
    for folder in ("whole", "kept"):
        qrels = list(ir_measures.read_trec_qrels(str(tmp_path / folder / "qrels.test.txt")))
        found = list(ir_measures.read_trec_run(str(tmp_path / folder / "runs" / "bm25.txt")))
        scores.append((len(qrels), ir_measures.calc_aggregate([ir_measures.nDCG @ 3, ir_measures.R @ 1], qrels, found)))
    assert scores[0] == scores[1]
    assert scores[0][0] == len(TENANTS) * len(CHUNK_IDS)


def test_folders_in_one_another_are_refused_and_nothing_is_written(finished: Run, tmp_path: Path) -> None:
    for to, kept in (("out", "out"), ("out", "out/kept"), ("kept/out", "kept")):
        with pytest.raises(ExportError, match="contain one another"):
            export(finished, "beir", tmp_path / to, tmp_path / kept)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    for to, kept in (("full", "kept"), ("out", "full")):
        with pytest.raises(ExportError, match="not an empty folder"):
            export(finished, "beir", tmp_path / to, tmp_path / kept)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("split", "where"), [("train", "in its test split"), ("test", "outside its test split")])
def test_a_run_with_nothing_to_tell_apart_is_refused(split: str, where: str, finished: Run, tmp_path: Path) -> None:
    given, run = finished.tables(), Run(str(tmp_path / "one split"))
    for table in ("chunks", "queries"):
        put(run, table, given.read(table))
    labels = given.sql("SELECT qrels.* FROM qrels JOIN queries USING (tenant, query_id) WHERE split = ?", [split])
    put(run, "qrels", labels.cast(QRELS.schema))
    with pytest.raises(ExportError, match=f"no positive {where}"):
        export(run, "beir", tmp_path / "public", tmp_path / "kept")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS.own_kinds())
def test_one_tenants_export_is_that_of_a_run_without_the_others(
    name: str, finished: Run, alone: dict[str, Run], tmp_path: Path
) -> None:
    for number, tenant in enumerate(TENANTS):
        export(alone[tenant], name, tmp_path / f"expected {number}")
        export(finished, name, tmp_path / f"found {number}", tenant=tenant)
        assert contents(tmp_path / f"found {number}") == contents(tmp_path / f"expected {number}")


def test_one_tenants_test_labels_are_withheld(finished: Run, alone: dict[str, Run], tmp_path: Path) -> None:
    export(alone[TENANTS[0]], "beir", tmp_path / "public", tmp_path / "kept")
    export(finished, "beir", tmp_path / "its public", tmp_path / "its kept", tenant=TENANTS[0])
    assert contents(tmp_path / "its public") == contents(tmp_path / "public")
    assert contents(tmp_path / "its kept") == contents(tmp_path / "kept")


def test_a_tenant_that_is_none_is_refused_with_those_there_are(finished: Run, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"has no tenant 'acne'; it has 'acme'$"):
        export(finished, "beir", tmp_path / "out", tenant="acne")
    with pytest.raises(ExportError, match=r"has no tenant \"x'--\"; it has 'acme', 'b/i rch'$"):
        export(finished, "beir", tmp_path / "out", tenant="x'--")
    assert not (tmp_path / "out").exists()
