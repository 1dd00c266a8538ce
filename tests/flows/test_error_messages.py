"""Mistakes as people make them: each is told in a few readable lines with what to do, and never by a traceback."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from darklode.flows import cli, error_messages
from darklode.flows.runs import write_run
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import CONTROL, DARKLODE, Call, free_port, run_inside
from helpers.finished_run import finished_run
from helpers.ingesting import hide_office

NOBODY = f"http://127.0.0.1:{free_port()}/v1"
BUILD = "build --docs docs --queries q.csv --out new"
MINE = "mine --logs log --docs docs --out new"
LLM = "--set judge.kind=llm --set judge.model=m"

TELLS = {
    # paths and files
    f"{BUILD} --docs nothing": "nothing does not exist; give a file or a folder",
    f"{BUILD} --queries nothing.csv": "nothing.csv does not exist",
    f"{BUILD} --docs empty": "empty contains no documents; give a folder",
    f"{BUILD} --queries empty": "empty contains no queries; give a .txt, .csv",
    f"{BUILD} --queries void.csv": "void.csv contains no queries: every file is empty",
    f"{BUILD} --queries head.csv": "head.csv contains no queries: every file is empty",
    f"{BUILD} --queries broken.parquet": "broken.parquet is not a valid Parquet file",
    f"{BUILD} --queries cut.csv.gz": "cut.csv.gz is a damaged gzip file",
    f"{BUILD} --queries book.xlsx": "soffice --headless --convert-to csv book.xlsx",
    f"{BUILD} --docs paper.pdf": "pdftotext paper.pdf",
    f"{BUILD} --docs letter.docx": "pandoc -o letter.docx.md letter.docx",
    f"{BUILD} --queries zip.csv": "zip.csv is a workbook or another ZIP file",
    f"{BUILD} --queries wide.csv": "iconv -f UTF-16LE -t UTF-8 wide.csv > wide.utf8.csv",
    f"{BUILD} --queries latin.csv": "if it is Latin-1: iconv -f WINDOWS-1252 -t UTF-8 latin.csv > latin.utf8.csv",
    f"{BUILD} --queries object.json": "object.json has no column for the text (none of text, user_query, query)",
    f"{BUILD} --queries two": "two has several query files (queries.csv, queries.txt); give the path of one",
    f"{BUILD} --docs docs --set ingest.documents.format=beir": "docs has no corpus.jsonl; a BEIR folder has",
    # columns
    f"{BUILD} --queries terms.csv": "is it --set ingest.queries.columns.text=search_term?",
    f"{BUILD} --queries odd.csv": "it has a, b; set --set ingest.queries.columns.text=NAME",
    f"{BUILD} --set ingest.queries.columns.text=txt": "is it --set ingest.queries.columns.text=text?",
    f"{BUILD} --docs rows.jsonl": "is it --set 'ingest.documents.columns.text=page text'?",
    f"{BUILD} --queries numbers.parquet": "column 'text' is of type int64, not text; set another column for text",
    f"{BUILD} --queries counts.csv": "(count is not a positive whole number: 1, such as counts.csv:2)",
    f"{BUILD} --queries q.csv --set ingest.require_tenant=true": "missing tenant",
    f"{MINE} --logs badlog": "is it --set logs.columns.timestamp=event_time?",
    f"{MINE} --logs badtimes": "unreadable timestamp",
    # where the run is to be
    "build --docs docs --queries q.csv --out docs": "holds a.md and no run; choose a new or empty folder with --out",
    "build --docs docs --queries q.csv --out q.csv": "q.csv",
    "build --docs docs --queries q.csv --out q.csv/run": "q.csv",
    "build --docs docs --queries q.csv --out gs://bucket/run": "gs:// is not supported for runs",
    "build --docs docs --queries q.csv --out s3://user:secret@bucket/run": (
        "s3:// URLs must not contain keys or options; set AWS_*"
    ),
    "build --docs docs --queries q.csv --out s3://": "s3://",
    f"{MINE} --out run": "run holds a benchmark (`darklode build`); choose another --out",
    # servers, models, keys
    f"{BUILD} {LLM} --set judge.base_url={NOBODY}": f"judge llm: no server at {NOBODY[7:]}; start it",
    f"{BUILD} {LLM} --set judge.base_url={NOBODY} --set judge.api_key_env=NO_SUCH_KEY": "set the environment variable",
    f"{BUILD} {LLM} --set judge.base_url={NOBODY} --set judge.prompt=mine": "mine",
    f"{BUILD} --preset devrev": "needs a key: set the environment variable GEMINI_API_KEY",
    f"{BUILD} --set judge.human_labels=none.csv": "none.csv",
    f"{BUILD} --set judge.human_labels=q.csv": "q.csv has no column query_id, chunk_id, relevance",
    f"{BUILD} --set runner.kind=ray --set runner.address=127.0.0.1:1": "no Ray cluster answers at runner.address",
    f"{BUILD} --set cache.root=q.csv": "q.csv",
    f"{MINE} --set term_weighting.kind=table --set term_weighting.table=none.csv": (
        "/none.csv cannot be read (No such file or directory); set term_weighting.table to"
    ),
    f"{MINE} --date 2026-04-01": "no partition for 2026-04-01; nearest: 2026-03-01",
    # commands on runs
    "status nothing": "nothing holds no run; make one with `darklode build --out",
    "report docs": "docs holds no run",
    "query run SELEC": "SELEC",
    "query run 'SELECT nope FROM queries'": "nope",
    "query nothing 'SELECT 1'": "holds no run",
    "export run --format beir --to docs": "docs is not an empty folder; use one that is empty",
    "export nothing --format beir --to out": "holds no run",
    "diff run nothing": "nothing holds no run",
    "pool nothing": "nothing holds no run",
    "evaluate nothing": "nothing holds no run",
    "evaluate run --run-file none.run": "none.run does not exist",
    "evaluate run --labels none.csv": "none.csv does not exist",
    "validate nothing": "nothing holds no run",
    "audit nothing": "nothing holds no run",
    "review nothing": "nothing holds no run",
    "judge stats nothing": "nothing holds no run",
    "init there.yaml --docs docs --queries q.csv": "there.yaml already exists",
    "init x.yaml --docs docs --queries nothing": "nothing does not exist",
}
"""What is wrong with what a user has, the words that help, and exit code 1."""

REFUSED = {
    "build --docs docs": "Missing option '--queries'",
    "bild": "No such command 'bild'",
    "status": "Missing argument 'RUN'",
    f"{BUILD} --depth 3": "No such option",
    f"{BUILD} --set pool.depth": "--set takes section.key=value, not 'pool.depth'",
    f"{BUILD} --set pool.deepth=1": "did you mean pool.depth?",
    f"{BUILD} --set pool.depth=many": "pool.depth: Input should be a valid integer",
    f"{BUILD} --set judge.kind=gpt": "judge.kind: there is no kind 'gpt'",
    f"{BUILD} {LLM}": "kind llm needs judge.base_url",
    f"{BUILD} --set seed=: --set x=[": "the value is not YAML",
    f"{BUILD} --preset nope": "there is no preset nope; did you mean",
    f"{MINE} --date 2026-13-01": "'2026-13-01' does not match",
    f"{MINE} --date 2026-03-01 --from 2026-03-01 --to 2026-03-02": "use either --date for one day",
    f"{MINE} --from 2026-03-02": "must be given together",
    f"{MINE} --from 2026-03-02 --to 2026-03-01": "the first not after the last",
    "query run 'SELECT 1' --format xml": "'xml' is not one of",
    "export run --format biers --to out": "unknown export format 'biers'; did you mean beir?",
    "evaluate run --set evaluate.n_resamples=0": "evaluate.n_resamples: Input should be greater than 0",
    "judge export-batch": "was renamed to `darklode judge batch export`",
    "init x.yaml": "--docs is required",
    "init x.yaml --docs docs": "queries or a search log are required",
    "init x.yaml --docs docs --queries q.csv --column text": "--column takes documents.ROLE=NAME",
    "review run --export-sheet x.csv": "together with --reviewer NAME",
    "review run --port 99999": "Invalid value for '--port'",
    # settings, in an option or a file
    f"{BUILD} --config none.yaml": "there is no settings file none.yaml",
    f"{BUILD} --config bad.yaml": "bad.yaml is not YAML",
    f"{BUILD} --config typo.yaml": "there is no setting poool.depth; did you mean pool.depth?",
    f"{BUILD} --config list.yaml": "list.yaml must hold sections",
    f"{BUILD} --config paths.yaml": "there is no paths.doc; did you mean paths.docs?",
    f"{BUILD} --config docs": "the settings file docs cannot be read",
    f"{MINE} --set logs.time_zone=Mars": "Mars",
    f"{BUILD} --set pool.retrievers=[bm52]": "unknown retriever bm52; did you mean bm25?",
    "evaluate run --system bm52": "evaluate.systems: unknown retriever bm52; did you mean bm25?",
    f"{BUILD} --set pool.retrievers=[bm52,tfidf]": "known are bm25, cca_feedback, character",
    f"{BUILD} --config unknown.yaml": "pool.retrievers: unknown retriever bm52; did you mean bm25? known are bm25,",
    f"{BUILD} --set judge.kind=encoder --set judge.encoder=e5": "judge.encoder: no encoder e5; encoders is empty",
    f"{BUILD} --set judge.kind=lm": "there is no kind 'lm'; did you mean llm? known are cascade, cross_encoder,",
    f"{MINE} --set relevance.retrievers=[nobody]": "relevance.retrievers: unknown retriever nobody; known are",
    f"{MINE} --set term_weighting.kind=tables": "term_weighting.kind: there is no kind 'tables'; did you mean table?",
}
"""What is wrong with the command line itself or with settings, the words that help, and exit code 2."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what people bring along."""
    root = tmp_path_factory.mktemp("desk")
    for name in ("docs", "empty", "two", "log", "badlog", "badtimes"):
        (root / name).mkdir()
    files = {
        "docs/a.md": "# Keys\n\nPress reset to get a new key.\n",
        "q.csv": "text\nhow to reset the key\n",
        "void.csv": "",
        "head.csv": "text,count\n",
        "broken.parquet": "PAR1 and no more",
        "cut.csv.gz": b"\x1f\x8b\x08",
        "book.xlsx": b"PK\x03\x04",
        "zip.csv": b"PK\x03\x04",
        "paper.pdf": "%PDF-1.7",
        "letter.docx": b"PK\x03\x04",
        "wide.csv": "text\nhow to reset\n".encode("utf-16-le"),
        "latin.csv": "text\nna\xefve\n".encode("latin-1"),
        "object.json": '{"rows":\n [{"text": "a"}]}\n',
        "two/queries.csv": "text\na\n",
        "two/queries.txt": "a\n",
        "terms.csv": "search_term,n\nhow to reset,1\n",
        "odd.csv": "a,b\n1,2\n",
        "rows.jsonl": '{"page text": "a"}\n',
        "counts.csv": "text,count\nhow to reset,often\n",
        "log/2026-03-01.csv": "timestamp,query,doc_id,clicked\n2026-03-01T10:00:00,how,a.md,1\n",
        "badlog/2026-03-01.csv": "event_time,query,doc_id,clicked\n2026-03-01T10:00:00,how,a.md,1\n",
        "badtimes/log.csv": "timestamp,query,doc_id,clicked\n03/01/26 10 am,how,a.md,1\n",
        "bad.yaml": "pool: [",
        "typo.yaml": "poool: {depth: 3}\n",
        "list.yaml": "- 1\n",
        "unknown.yaml": "pool: {retrievers: [bm52]}\n",
        "paths.yaml": "paths: {doc: x}\n",
        "there.yaml": "seed: 1\n",
    }
    for name, content in files.items():
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    _numbers(root / "numbers.parquet")
    write_run(
        finished_run(str(root / "run")),
        BenchmarkInputs(docs=str(root / "docs"), queries=str(root / "q.csv")),
        Settings(),
    )
    return root


def _numbers(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": [1, 2]}), file)


@pytest.fixture
def at_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(desk)
    hide_office(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk / "cache"))
    return desk


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Nothing is begun where something is in the way."""
    before = sorted(folder.iterdir())
    yield
    assert sorted(folder.iterdir()) == before


def words_of(command: str) -> list[str]:
    """A command as typed; of an option that is given twice, typer takes the last."""
    import shlex

    return [DARKLODE, *shlex.split(command)]


@pytest.mark.slow
@pytest.mark.parametrize("command", TELLS)
def test_what_is_wrong_is_told_with_what_to_do(at_desk: Path, command: str) -> None:
    with unchanged(at_desk):
        shown = run_inside(words_of(command), os.environ)
    assert shown.code == 1, shown
    assert re.match(r"error: \S", shown.err), shown.err
    assert TELLS[command] in shown.err
    assert "Traceback" not in shown.err + shown.out
    assert error_messages.UNEXPECTED_ERROR_ADVICE not in shown.err
    assert not CONTROL.search(shown.err)
    assert "secret" not in shown.err


@pytest.mark.parametrize("command", REFUSED)
def test_a_wrong_command_line_ends_with_2(at_desk: Path, command: str) -> None:
    with unchanged(at_desk):
        shown = run_inside(words_of(command), os.environ)
    assert shown.code == 2, shown
    assert REFUSED[command] in " ".join(re.sub("[│╭╮╰╯─]", " ", shown.err).split()), shown.err
    assert "Traceback" not in shown.err + shown.out


@pytest.mark.slow
def test_an_s3_server_that_is_away_is_told(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "name", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": NOBODY.removesuffix("/v1")}.items():
        monkeypatch.setenv(name, value)
    shown = call("status", "s3://bucket/run")
    assert shown.code == 1
    assert shown.err.startswith(f"error: S3 at {NOBODY[7:-3]} cannot be reached (curlCode: 7, ")
    assert error_messages.UNEXPECTED_ERROR_ADVICE not in shown.err


def test_there_are_sixty_and_more() -> None:
    assert len(TELLS) + len(REFUSED) > 60


def test_debug_shows_the_traceback_wherever_it_stands(at_desk: Path, call: Call) -> None:
    assert at_desk.exists()
    for words in (["--debug", "status", "nothing"], ["status", "nothing", "--debug"]):
        shown = call(*words)
        assert shown.code == 1
        assert shown.err.startswith("Traceback")
        assert shown.err.splitlines()[-1].startswith("error: ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/x/y"), "error: /x/y: Permission denied\n"),
        (OSError(28, "No space left on device"), "error: No space left on device\n"),
        (MemoryError(), "error: out of memory"),
        (KeyError("[red]x"), "error: KeyError: '[red]x'; this is a bug: run the same command with --debug"),
        (ValueError(), "error: ValueError: no reason given; this"),
    ],
)
def test_what_nobody_thought_of_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def broken(args: list[str]) -> None:
        raise error

    monkeypatch.setattr(cli, "app", broken)
    shown = call("status", "run")
    assert (shown.code, shown.err.count("\n")) == (1, 1)
    assert shown.err.startswith(said)
