"""`darklode mine`: what it prints, what it leaves on disk, and how it fails."""

import json
import os
import re
import shutil
import socket
from pathlib import Path

import pytest
import yaml

from darklode.flows.config import load_settings
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.run_inputs import BenchmarkInputs
from helpers.commands import (
    DARKLODE,
    Call,
    Environment,
    SampleRun,
    build_command,
    built,
    mine_command,
    one_line,
    run_inside,
    tables_of,
)
from helpers.runs import SAMPLE

pytestmark = pytest.mark.server

STEPS = (
    "ingest_documents ingest_logs click_model click_evidence log_queries mined_splits fit_term_weights weight_terms "
    "associate relevance mined_pairs mined_triplets mined_test held_out"
).split()
SOURCES = ("click_multi_hop", "click_one_hop")


@pytest.fixture
def copied(mined_run: SampleRun, tmp_path: Path) -> Path:
    """A mined run of one's own, as finished as the sample's."""
    return Path(shutil.copytree(mined_run.folder, tmp_path / "run"))


def triplets_of(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in tables_of(folder).items() if name.startswith("triplets/")}


# what it prints and leaves


def test_a_first_night_prints_what_came_of_the_log_and_where_it_is(mined_run: SampleRun) -> None:
    printed = mined_run.printed
    places = [printed.index(f"{step}: not run yet\n") for step in STEPS]
    assert places == sorted(places)
    assert all(f"✓ {step} " in printed for step in STEPS)
    assert re.search(r"^✓ ingest_logs +[\d,]+ rows → 12,123 rows ", printed, re.M)
    for source in SOURCES:
        assert re.search(rf"^{source}( +[\d,]+){{5}}$", printed, re.M), source
    assert len(re.findall(r"^2026-03-\d\d( +[\d,]+){8}$", printed, re.M)) == 8
    assert re.search(r"^Associations\nkind .*beyond_the_cap\nclick ", printed, re.M)
    assert "have no negative" not in printed
    for place in ("report.html", "README.md", "tables/triplets/", "views.sql", "settings.yaml"):
        assert f" {mined_run.folder}/{place}\n" in printed
        assert (mined_run.folder / place).exists()


@pytest.mark.slow
def test_a_second_night_without_news_redoes_nothing(copied: Path, served: Environment) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        found = (path for name in ("tables", "manifests") for path in (copied / name).rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in found}

    before = files()
    printed = built(mine_command(copied), served)
    assert re.search(r"^no new days in the log: its 10 partitions were read before$", printed, re.M)
    for step in [*STEPS, "funnel"]:
        assert re.search(rf"^✓ {step} .* up to date$", printed, re.M), step
    assert "not run yet" not in printed
    assert files() == before


def test_status_and_settings_of_a_mined_run(call: Call, copied: Path) -> None:
    shown = call("status", copied)
    assert (shown.code, shown.err) == (0, "")
    for step in STEPS:
        assert re.search(rf"^{step} +up to date +\S.* \d+\.\d{{3}}$", shown.out, re.M), step
    settings = call("status", copied, "--settings").out
    assert settings == (copied / "settings.yaml").read_text()
    chosen = yaml.safe_load(settings)
    assert chosen == load_settings().model_dump(mode="json")
    chosen["click"]["min_clicks"] = 3
    (copied / "settings.yaml").write_text(yaml.safe_dump(chosen))
    assert re.search(r"^mined_pairs +min_clicks: 1 → 3 ", call("status", copied).out, re.M)


def test_the_mined_tables_answer_queries(call: Call, mined_run: SampleRun) -> None:
    sql = """
        SELECT t.tenant, count(*) AS n, count(DISTINCT t.date) AS days, bool_and(d.text IS NOT NULL) AS known
        FROM triplets t LEFT JOIN documents d ON d.tenant = t.tenant AND d.doc_id = t.positive_id
        GROUP BY t.tenant ORDER BY t.tenant
    """
    rows = json.loads(call("query", mined_run.folder, sql, "--format", "json").out)
    assert [row["tenant"] for row in rows] == ["default", "tern"]
    assert all(row["known"] and row["days"] == 10 and row["n"] > 50 for row in rows)
    tables = Run(str(mined_run.folder)).tables()
    assert sum(row["n"] for row in rows) == tables.rows("triplets")


# days


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--date", "2026-03-02", "--from", "2026-03-01"],
            "use either --date for one day, or --from and --to",
        ),
        (["--from", "2026-03-01"], "--from and --to must be given together; use --date for one day"),
        (["--to", "2026-03-01"], "--from and --to must be given together; use --date for one day"),
        (["--date", "2026-02-30"], "'2026-02-30' does not match the formats '%Y-%m-%d'"),
        (["--test-from", "tomorrow"], "'tomorrow' does not match the formats '%Y-%m-%d'"),
        (
            ["--set", "admission.false_alarm_rate=-1"],
            "admission.false_alarm_rate: Input should be greater than or equal to 0",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_days_that_cannot_be_meant_are_one_message(
    call: Call, tmp_path: Path, options: list[str], message: str
) -> None:
    outcome = call(*mine_command(tmp_path / "run", *options)[1:])
    assert outcome.code in {1, 2}
    assert message in re.sub(r"[│\s]+", " ", outcome.err)
    assert not (tmp_path / "run").exists()


def test_a_day_without_a_partition_and_days_in_the_wrong_order(copied: Path, served: Environment) -> None:
    absent = run_inside(mine_command(copied, "--date", "2026-04-09"), served)
    assert absent.code == 1
    assert absent.err == (
        "error: the log has no partition for 2026-04-09; nearest: 2026-03-08, 2026-03-09, 2026-03-10\n"
    )
    wrong = run_inside(mine_command(copied, "--from", "2026-03-04", "--to", "2026-03-01"), served)
    assert wrong.code == 2
    assert re.fullmatch(r"error: [^\n]*the first not after the last \(got 2026-03-04, 2026-03-01\)\n", wrong.err)


# folders


def test_a_benchmark_and_mined_triplets_do_not_share_a_folder(
    copied: Path, served: Environment, tmp_path: Path
) -> None:
    before = tables_of(copied)
    refused = run_inside(build_command(copied), served)
    assert refused.code == 1
    assert refused.err == f"error: {copied} holds mined triplets (`darklode mine`); choose another --out\n"
    assert tables_of(copied) == before
    benchmark = tmp_path / "benchmark"
    write_run(Run(str(benchmark)), BenchmarkInputs(docs=str(SAMPLE), queries=str(SAMPLE)), load_settings())
    refused = run_inside(mine_command(benchmark), served)
    assert refused.code == 1
    assert refused.err == f"error: {benchmark} holds a benchmark (`darklode build`); choose another --out\n"
    assert not (benchmark / "tables").exists()


def test_two_nights_at_once_are_one_too_many(copied: Path, served: Environment) -> None:
    before = tables_of(copied)
    with Run(str(copied)).lock():
        second = run_inside(mine_command(copied, "--refresh"), served)
    owner = rf"\({socket.gethostname()}, PID {os.getpid()}, since \S+\)"
    message = rf"error: another process {owner} is writing to {copied}; wait for it or choose another --out\n"
    assert second.code == 1
    assert re.fullmatch(message, second.err)
    assert tables_of(copied) == before


# learning and testing


def learned(folder: Path) -> tuple[str, str]:
    """Version and last day of the term weights, as the card names them."""
    card = (folder / "README.md").read_text()
    found = re.search(r"^- term weighting `([0-9a-f]{16})`: trained on the log up to (\S+)$", card, re.M)
    assert found, card
    return found[1], found[2]


@pytest.mark.slow
def test_refresh_learns_from_all_that_is_settled(copied: Path, served: Environment) -> None:
    version, through = learned(copied)
    assert through == "2026-03-05"
    printed = built(mine_command(copied, "--refresh"), served)
    assert "\nfit_term_weights: the settled days changed\n" in printed
    refreshed, later = learned(copied)
    assert (refreshed != version, later) == (True, "2026-03-08")
    again = built(mine_command(copied), served)
    assert re.search(r"^✓ fit_term_weights .* up to date$", again, re.M)
    assert learned(copied) == (refreshed, later)


@pytest.mark.slow
def test_a_test_period_leaves_training_and_makes_a_test_set(copied: Path, served: Environment) -> None:
    built(mine_command(copied, "--test-from", "2026-03-09"), served)
    tables = Run(str(copied)).tables()
    assert str(tables.sql("SELECT max(date) AS last FROM triplets")["last"][0]) == "2026-03-08"
    assert str(tables.sql("SELECT min(date) AS first FROM mined_test")["first"][0]) == "2026-03-09"
    assert tables.rows("mined_test") > 20
    assert tables.rows("mined_test_pool") > tables.sql("SELECT DISTINCT tenant, doc_id FROM mined_test").num_rows


# days that are held back


def broken(log: Path) -> None:
    """The sample's first nine days, and a tenth of which every document was clicked."""
    shutil.copytree(SAMPLE / "impressions", log)
    file = log / "date=2026-03-10" / "impressions.csv"
    file.write_text(file.read_text().replace(",false", ",true"))


@pytest.mark.slow
def test_a_garbage_day_is_held_until_somebody_decides(served: Environment, tmp_path: Path) -> None:
    log, run, clean = tmp_path / "log", tmp_path / "run", tmp_path / "clean"
    broken(log)
    fast = ("--set", "relevance.ranker=none")
    held = run_inside(mine_command(run, *fast, logs=log), served)
    assert held.code == 4
    assert re.search(r"^Days held back\n.*^2026-03-10 +default +1,?375 ", held.out, re.M | re.S)
    assert re.search(r"^error: default:2026-03-10 is held back: [^\n]* clicks a search \([^\n]* expected", held.err)
    for option in ("--accept-day", "--discard-day"):
        assert re.search(rf"`darklode mine .*--set relevance.ranker=none {option} tern:2026-03-10`", held.err), held.err
    shutil.copytree(log, tmp_path / "short", ignore=shutil.ignore_patterns("date=2026-03-10"))
    built(mine_command(clean, *fast, logs=tmp_path / "short"), served)
    assert triplets_of(run) == triplets_of(clean)
    assert run_inside(mine_command(run, *fast, logs=log), served).code == 4

    shown = built([DARKLODE, "status", str(run)], served)
    assert re.search(r"^2026-03-10 +default +held ", shown, re.M)
    built(mine_command(run, *fast, "--discard-day", "2026-03-10", "--reason", "a bad export", logs=log), served)
    assert triplets_of(run) == triplets_of(clean)
    assert re.search(
        r"^2026-03-10 +tern +discarded .* a bad export", built([DARKLODE, "status", str(run)], served), re.M
    )
    assert "a bad export" in (run / "report.html").read_text()
    built(mine_command(run, *fast, "--accept-day", "2026-03-10", logs=log), served)
    assert [name for name in triplets_of(run) if "date-2026-03-10" in name]

    shutil.copy(SAMPLE / "impressions" / "date=2026-03-10" / "impressions.csv", log / "date=2026-03-10")
    built(mine_command(run, *fast, logs=log), served)
    assert "2026-03-10" not in built([DARKLODE, "status", str(run)], served)
    one_line(
        run_inside(mine_command(run, *fast, "--accept-day", "2026-04-01", logs=log), served), "no day 2026-04-01", 2
    )
