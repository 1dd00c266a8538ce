"""The judge's look at what a log showed: who is drawn, what is asked, what is counted."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Manifest, Output, Run, Stage, Tables
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.evaluate.online_metrics import ONLINE_STAGE, online
from darklode.pipeline.evaluate.online_verdicts import ONLINE_VERDICTS_STAGE, online_verdicts
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.judge.embedded import EmbeddedJudge
from darklode.pipeline.judge.port import Judge
from darklode.pipeline.prepare.chunk import CHUNK, chunk
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.mining import LogSettings
from darklode.schemas.settings import ChunkSettings, IngestSettings
from darklode.schemas.tables import TABLES
from helpers.judge_tables import chunks
from helpers.online_log import search
from helpers.runs import SAMPLE, execute, put, read
from helpers.scripted_judge import RELEVANT, UNREADABLE, ScriptedJudge, from_table

Search = list[dict[str, Any]]
FOUR, TWENTY = "irrelevant among the first 4", "irrelevant among the first 20"


def run_of(folder: Path, *searches: Search, tenants: tuple[str, ...] = ("a",), gone: str = "") -> Run:
    """A log, and a document of one chunk for each that it shows, named d1 and so on."""
    run, rows = Run(str(folder / "run")), [row for one in searches for row in one]
    shown(run, rows)
    known = sorted({row["doc_id"] for row in rows} - {gone})
    tables = []
    for tenant in tenants:
        table = chunks(tenant, {f"{doc}#0": doc for doc in known})
        place = table.schema.get_field_index("doc_id")
        tables.append(table.set_column(place, table.schema.field("doc_id"), [known]))
    put(run, "chunks", pa.concat_tables(tables))
    return run


def shown(run: Run, rows: list[dict[str, Any]]) -> None:
    """Give the run impressions, a part for each day."""
    days: dict[date, list[dict[str, Any]]] = {}
    for row in rows:
        days.setdefault(row["timestamp"].date(), []).append(row)

    def write(_: Tables, output: Output) -> None:
        for day, mine in sorted(days.items()):
            with output.unit(str(day), ""):
                output.write("impressions", pa.Table.from_pylist(mine, schema=TABLES["impressions"].schema))

    stage = Stage("given_impressions", 1, (), ("impressions",))
    run.execute(run.plan(stage, {"rows": len(rows)}), write)


def judged(
    run: Run, judge: Judge | Callable[[TenantChunks], Judge], searches: int = 50, seed: int = 1
) -> tuple[Manifest, dict[tuple[str | None, str], dict[str, Any]]]:
    """Judge and count; returns what the judging counted, and the rows of everybody by variant and measure."""
    judge_for = judge if not hasattr(judge, "judge_id") else lambda _tenant: judge
    measuring = EvaluateSettings(n_resamples=200, permutations=500)
    logs, given = LogSettings(), {"searches": searches, "seed": seed}
    made = run.execute(
        run.plan(ONLINE_VERDICTS_STAGE, given),
        lambda tables, output: online_verdicts(tables, output, logs, judge_for=judge_for, **given),  # type: ignore[arg-type]
    )
    execute(
        run,
        ONLINE_STAGE.reading("online_verdicts"),
        lambda tables, output: online(tables, output, logs, measuring, searches=searches, seed=1),
    )
    rows: list[dict[str, Any]] = [row for row in read(run, "online") if row["tenant"] is None]
    return made, {(row["variant"], row["measure"]): row for row in rows}


def test_the_shares_are_those_of_the_hand(tmp_path: Path) -> None:
    run = run_of(tmp_path, search(1, ["x"] * 6, set(), "one"), search(2, ["y"] * 5, set(), "two"), gone="d3")
    judge = ScriptedJudge(from_table({("q", "d1#0"): RELEVANT, ("q", "d2#0"): UNREADABLE, ("q", "d5#0"): RELEVANT}))
    made, found = judged(run, judge)
    assert (found["x", FOUR]["value"], found["x", FOUR]["counted"]) == (pytest.approx(1 / 2), 2)
    assert (found["x", TWENTY]["value"], found["x", TWENTY]["counted"]) == (pytest.approx(2 / 4), 4)
    assert found["y", TWENTY]["value"] == pytest.approx(1 / 3)
    assert found[None, TWENTY]["value"] == pytest.approx(3 / 7)
    assert judge.asked == [("a", "q", f"d{number}#0") for number in (1, 2, 4, 5, 6)], "each document once"
    facts = {"shown": 11, "relevant": 4, "not_relevant": 3, "unknown": 4, "chunks": 5}
    assert {name: made.facts[name] for name in facts} == facts
    (pair,) = [row for row in read(run, "online_pairs") if row["measure"] == TWENTY]
    assert (pair["variant"], pair["difference"]) == ("y", pytest.approx(1 / 3 - 1 / 2))


@pytest.mark.slow
def test_so_many_searches_of_each_arm_are_drawn_and_no_more_is_asked(tmp_path: Path) -> None:
    log = [search(60 * n, [("x", "y", None)[n % 3]] * 25, set(), f"s{n}") for n in range(90)]
    for number, rows in enumerate(log):
        for row in rows:
            row |= {"query_id": f"q{number}", "query": f"q{number}"}
    run, judge = run_of(tmp_path, *log), ScriptedJudge()
    made, found = judged(run, judge, searches=3)
    rows = read(run, "online_verdicts")
    drawn = {(row["variant"], row["search_id"]) for row in rows}
    assert sorted(str(variant) for variant, _ in drawn) == ["None"] * 3 + ["x"] * 3 + ["y"] * 3
    assert len({row["date"] for row in rows}) > 1
    assert len(judge.asked) == len(rows) == made.facts["chunks"] == 9 * 20
    assert found[None, TWENTY]["value"] == 1.0
    other = run_of(tmp_path / "other", *reversed(log))
    judged(other, ScriptedJudge(), searches=3)
    assert read(other, "online_verdicts") == rows, "the lot decides, and not the order of the log"
    judged(other, ScriptedJudge(), searches=3, seed=2)
    assert {(row["variant"], row["search_id"]) for row in read(other, "online_verdicts")} != drawn


def test_a_drawn_search_stands_for_those_that_were_not(tmp_path: Path) -> None:
    """Nine searches of x, all bad, one of y, all good: one of each is looked at."""
    log = [search(60 * n, ["x" if n else "y"] * 4, set(), f"s{n}") for n in range(10)]
    for row in log[0]:
        row |= {"query_id": "good", "query": "good"}
    judge = ScriptedJudge(lambda pair: RELEVANT if pair["query"] == "good" else UNREADABLE | {"relevant": False})
    _, found = judged(run_of(tmp_path, *log), judge, searches=1)
    assert (found["x", FOUR]["value"], found["y", FOUR]["value"]) == (1.0, 0.0)
    assert found[None, FOUR]["value"] == pytest.approx(0.9)
    assert found[None, FOUR]["counted"] == 8


def test_what_was_judged_stands_and_a_tenant_without_documents_is_left_out(tmp_path: Path) -> None:
    run = run_of(tmp_path, search(1, [None] * 3, set()), search(2, [None] * 3, set(), tenant="b"))
    made, found = judged(run, ScriptedJudge())
    assert found[None, FOUR]["counted"] == 3
    (step,) = made.funnel
    assert step.dropped == {"its tenant has no documents": 3}
    again = ScriptedJudge()
    put(run, "impressions", pa.concat_tables([run.tables("impressions").read("impressions")] * 2))
    judged(run, again)
    assert not again.batches, "an event that the log repeats changes nothing"


def test_the_embedded_judge_finds_a_shuffled_log_worse(run: Run) -> None:
    """On the sample: variant good shows a title its own document, variant bad the document of another title."""
    execute(run, INGEST_DOCUMENTS, lambda _, out: ingest_documents(str(SAMPLE / "documents"), out, IngestSettings()))
    execute(run, CHUNK, lambda tables, out: chunk(tables, out, ChunkSettings()))
    known: list[Any] = [row for row in read(run, "documents") if row["title"]][:30]
    rows = []
    for number, row in enumerate(known):
        other = known[(number + 11) % len(known)]
        for variant, shown in (("good", row), ("bad", other)):
            (one,) = search(2 * number + (variant == "bad"), [variant], set(), f"{variant} {number}", row["tenant"])
            rows.append(one | {"query_id": row["title"], "query": row["title"], "doc_id": shown["doc_id"]})
    put(run, "impressions", pa.Table.from_pylist(rows, schema=TABLES["impressions"].schema))
    _, found = judged(run, lambda tenant: EmbeddedJudge(TermSpace(tenant.batches())))
    assert found["bad", FOUR]["value"] > found["good", FOUR]["value"] + 0.3
    assert found["good", FOUR]["low"] <= found["good", FOUR]["value"] <= found["good", FOUR]["high"]
    (pair,) = [row for row in read(run, "online_pairs") if row["measure"] == FOUR]
    assert pair["p"] <= 0.05  # type: ignore[operator]
