"""What is in the way is found before anything begins: all of it at once, in the words of whoever would have ended."""

from datetime import date
from pathlib import Path

import pytest

from darklode.flows.config import load_settings
from darklode.flows.preflight import CheckResults, build_checks, mining_checks, run_checks
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import InputError, MissingPart, NotReady
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from helpers.commands import Call, free_port
from helpers.fake_chat import FakeChat
from helpers.runs import SAMPLE
from helpers.small_log import DOCS, FIRST, Search, mine

LLM = ["judge.kind=llm", "judge.model=m"]


def build_of(
    tmp_path: Path, *assignments: str, docs: object = SAMPLE, queries: object = SAMPLE, out: object = None
) -> CheckResults:
    settings = load_settings(assignments=[f"cache.root={tmp_path}/cache", *assignments])
    return run_checks(build_checks(str(docs), str(queries), str(out or tmp_path / "run"), settings))


def test_the_sample_is_in_nobodys_way_and_nothing_is_written(tmp_path: Path) -> None:
    assert build_of(tmp_path) == CheckResults([], [])
    settings = load_settings(assignments=[f"cache.root={tmp_path}/cache"])
    assert run_checks(mining_checks(str(SAMPLE), str(SAMPLE), str(tmp_path / "run"), settings)).errors == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "first", "said"),
    [
        (DecisionRequest(accept=["2026-03-02"], discard=["default:20260303"]), None, None),
        (DecisionRequest(accept=["2026-04-01"]), None, "the log has no day 2026-04-01; `darklode status RUN` lists"),
        (DecisionRequest(discard=["2026-03-05"]), date(2026, 3, 1), "the log has no day 2026-03-05"),
        (DecisionRequest(accept=["yesterday"]), None, "'yesterday' is not a date; write 2026-03-11"),
        (
            DecisionRequest(accept=["2026-03-02"], discard=["2026-03-02"]),
            None,
            "both accepted and discarded",
        ),
    ],
)
def test_a_decided_day_must_be_there(
    tmp_path: Path, wish: DecisionRequest, first: date | None, said: str | None
) -> None:
    settings = load_settings(assignments=[f"cache.root={tmp_path}/cache"])
    given = (str(SAMPLE), str(SAMPLE), str(tmp_path / "run"), settings)
    found = [str(error) for error in run_checks(mining_checks(*given, first and [first], wish)).errors]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
    assert list(tmp_path.iterdir()) == []


def test_a_day_that_the_run_has_read_may_be_decided_when_its_file_is_gone(run: Run, tmp_path: Path) -> None:
    mine(run, {FIRST: [Search("t", "s", 1, "one", (DOCS[0],))]})
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "2026-04-01.csv").write_text("timestamp,query,doc_id,clicked\n2026-04-01T10:00:00,how,a.md,1\n")
    given = (str(tmp_path / "log"), str(SAMPLE), run.store.url, load_settings())
    for day, errors in ((FIRST, 0), (date(2026, 4, 1), 0), (date(2026, 4, 2), 1)):
        checks = mining_checks(*given, decisions=DecisionRequest(discard=[day.isoformat()]))
        assert len([one for one in run_checks(checks).errors if "has no day" in str(one)]) == errors


def test_all_that_is_wrong_is_found_at_once(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    (tmp_path / "labels.csv").write_text("query,chunk\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.md").write_text("mine\n")
    given = [*LLM, f"judge.base_url={nobody}", f"judge.human_labels={tmp_path}/labels.csv", "runner.kind=ray"]
    found = build_of(tmp_path, *given, "runner.address=127.0.0.1:1", docs=tmp_path / "nothing", queries=tmp_path / "no")
    said = [str(error) for error in found.errors]
    assert [
        next((one for one in said if words in one), None) is not None
        for words in (
            "nothing does not exist",
            "no does not exist",
            "holds notes.md and no run",
            "labels.csv has no column query_id",
            f"judge llm: no server at {nobody[7:]}; start it",
            "no Ray cluster answers",
        )
    ] == [True] * 6, said
    assert len(said) == 6


def test_one_error_is_itself_and_several_are_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        build_of(tmp_path, docs="nothing").raise_errors()
    with pytest.raises(NotReady) as several:
        build_of(tmp_path, docs="nothing", queries="nowhere").raise_errors()
    assert [one.partition(" ")[0] for one in several.value.each] == ["nothing", "nowhere"]


def test_a_server_that_serves_another_model_is_told(tmp_path: Path) -> None:
    with FakeChat(model="other") as server:
        (error,) = build_of(tmp_path, *LLM, f"judge.base_url={server.url}").errors
        assert "serves other, not m; correct model" in str(error)
        assert isinstance(error, MissingPart)
        assert server.requests == 0


def test_kept_answers_spare_the_server(tmp_path: Path) -> None:
    given = [*LLM, f"judge.base_url=http://127.0.0.1:{free_port()}/v1"]
    Ledger(f"{tmp_path}/cache").parts.register("llm-1:m:binary")
    found = build_of(tmp_path, *given)
    assert found.errors == []
    assert "no server at" in found.notes[0]
    assert "cached answers do not need it" in found.notes[0]


def test_what_a_preset_lacks_is_listed_whole(call: Call, tmp_path: Path) -> None:
    shown = call("build", "--docs", SAMPLE, "--queries", SAMPLE, "--out", tmp_path / "run", "--preset", "devrev")
    assert shown.code == 1
    for lacking in ("GEMINI_API_KEY", "OPENAI_API_KEY", "COHERE_API_KEY", "127.0.0.1:8001", "SFR-Embedding-Mistral: "):
        assert lacking in shown.err
    assert all(line.startswith("error: ") for line in shown.err.splitlines())
    assert not (tmp_path / "run").exists()


def test_check_only_looks(call: Call, tmp_path: Path) -> None:
    command = ["build", "--docs", SAMPLE, "--queries", SAMPLE, "--out", tmp_path / "run", "--check"]
    shown = call(*command)
    assert (shown.code, shown.err, shown.out.splitlines()[-1]) == (0, "", "All checks passed.")
    wrong = call(*command, "--set", "pool.depth=-1", "--set", "chunk.size=x", "--docs", "nothing")
    assert wrong.code == 1
    assert [line.split()[1] for line in wrong.err.splitlines()] == ["chunk.size:", "pool.depth:", "nothing"]
    mined = call("mine", "--docs", SAMPLE, "--logs", "nothing", "--out", tmp_path / "run", "--check")
    assert (mined.code, mined.err) == (1, "error: nothing does not exist; give a file or a folder\n")
    assert list(tmp_path.iterdir()) == []


FOREIGN = {
    "de": """wie kann ich mein Passwort ändern|Wie lösche ich ein Konto?|wo finde ich die Rechnung|Passwort zurücksetzen
        gibt es eine Möglichkeit, den Zugang zu sperren|Fehlermeldung beim Speichern der Einstellungen
        kann man Berichte mit Kollegen teilen|Was kostet eine Lizenz?|Anmeldung funktioniert nicht mehr
        Warum wird die Datei nicht angezeigt?""",
    "en": """how can I change my password|how do I delete an account|where do I find the invoice|reset my password
        is there a way to block access|error message while saving the settings|can I share reports with colleagues
        what does a license cost|login no longer works|why is the file not shown""",
}


def questions(file: Path, **copies: int) -> Path:
    texts = [
        text.strip()
        for language, n in copies.items()
        for text in FOREIGN[language].replace("\n", "|").split("|") * n
        if text.strip()
    ]
    file.write_text("".join(f"{text}\n" for text in texts))
    return file


@pytest.mark.parametrize(
    ("copies", "settings", "said"),
    [
        (
            {"de": 2},
            ["clean.language=en"],
            ["100% de among the queries, but clean.language keeps only en", "clean.language=de,"],
        ),
        ({"de": 1}, ["clean.language=en"], ["% de among the queries, but clean.language keeps only en"]),
        ({"de": 2, "en": 2}, ["clean.language=en"], ["clean.language=[en, de], or null for every language"]),
        ({"de": 2, "en": 2}, ["clean.language=[de, en]"], []),
        ({"de": 2}, ["clean.language=null"], []),
        ({"de": 2}, ["clean.keep_all=true"], []),
        ({"en": 2}, ["clean.language=en"], []),
        ({"de": 2}, [], []),
    ],
)
def test_the_language_of_the_queries_is_told_where_cleaning_would_drop_it(
    tmp_path: Path, copies: dict[str, int], settings: list[str], said: list[str]
) -> None:
    found = build_of(tmp_path, *settings, queries=questions(tmp_path / "q.txt", **copies))
    assert (len(found.notes), found.errors) == (bool(said), [])
    assert all(words in found.notes[0] for words in said)


def test_a_place_that_cannot_be_written_to_is_named_and_hides_nothing(tmp_path: Path) -> None:
    """`/proc` takes no file, whoever asks; names may not be longer than 255 bytes."""
    settings = load_settings(assignments=["cache.root=/proc/cache", f"split.generated_queries={tmp_path}/none"])
    nowhere = str(tmp_path / "nowhere")
    found = [str(error) for error in run_checks(build_checks(nowhere, nowhere, "/proc/run", settings)).errors]
    starts = [
        nowhere,
        "--out /proc/run cannot be created",
        f"{tmp_path}/none",
        "cache.root /proc/cache cannot be created",
    ]
    assert len(found) == len(starts)
    assert all(error.startswith(start) for error, start in zip(found, starts, strict=True)), found
    assert not any("tmp/tmp" in error or "/proc/tmp" in error for error in found)
    long = build_of(tmp_path, out=str(tmp_path / ("x" * 300)), docs=nowhere)
    assert len(long.errors) == 2
    assert "too long" in str(long.errors[1])


def test_swapped_inputs_are_recognised_and_others_are_not(tmp_path: Path) -> None:
    documents, queries = str(SAMPLE / "documents"), str(SAMPLE / "queries.csv")

    def swapped(docs: str, asked: str) -> bool:
        return any("look swapped" in str(error) for error in build_of(tmp_path, docs=docs, queries=asked).errors)

    assert swapped(queries, documents)
    assert not swapped(documents, queries)
    assert not swapped(str(tmp_path / "nowhere"), queries)
    assert not swapped(queries, queries)
