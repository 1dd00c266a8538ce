"""Who is told how a flow goes on, and that nothing is told twice."""

import logging

import pyarrow as pa
import pytest

from darklode.flows.prefect.progress import ROW_UNITS, OnceReporter, SilentReporter, reporter, reporting, summary
from darklode.pipeline.base.artifacts import FunnelStep, Manifest, Part
from darklode.schemas.tables import TABLES


def manifest(*funnel: FunnelStep, **outputs: int) -> Manifest:
    halves = {name: (rows // 2, rows - rows // 2) for name, rows in outputs.items()}
    parts = {name: [Part("a", one, 9, "x"), Part("b", other, 9, "y")] for name, (one, other) in halves.items()}
    return Manifest("clean", "f", {}, {}, parts, list(funnel), 1.5)


class Told(SilentReporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self, stage: str, reason: str) -> None:
        self.told.append(f"{stage} starts: {reason}")

    def finish(self, stage: str, manifest: Manifest, redone: bool) -> None:
        self.told.append(f"{stage} {'is done' if redone else 'stands'}")

    def table(self, title: str, rows: pa.Table) -> None:
        self.told.append(title)

    def say(self, sentence: str) -> None:
        self.told.append(sentence)


def test_what_stands_and_what_was_said_is_told_once_and_what_is_done_every_time() -> None:
    told = Told()
    once = OnceReporter(told)
    for _ in range(2):
        once.finish("clean", manifest(), redone=False)
        once.say("look")
        once.table("look", pa.table({}))
        once.start("judge", "the pool changed")
        once.finish("judge", manifest(), redone=True)
    assert told.told == [
        "clean stands",
        "look",
        "look",
        *["judge starts: the pool changed", "judge is done"] * 2,
    ], "a sentence and a table of one text are two things"


def test_a_flow_finds_the_reporter_of_its_block_and_only_there() -> None:
    told = Told()
    before = reporter()
    with reporting(told):
        reporter().say("inside")
        with reporting(SilentReporter()):
            reporter().say("of another flow")
        reporter().say("inside again")
    assert told.told == ["inside", "inside again"]
    assert reporter() is before


def test_a_flow_that_fails_gives_its_reporter_back() -> None:
    before = reporter()
    with pytest.raises(ZeroDivisionError), reporting(Told()):
        _ = 1 // 0
    assert reporter() is before


def test_a_stage_in_one_line() -> None:
    steps = (
        FunnelStep("noise", "queries", 12_000, "queries", 11_000, {"noise": 1000}),
        FunnelStep("sample", "queries", 11_000, "clusters", 900),
    )
    assert summary(manifest(*steps, cleaned_queries=900)) == "12,000 queries → 900 clusters"
    assert summary(manifest(chunks=1234, rejects=1)) == "1,234 rows of chunks, 1 rows of rejects"
    assert summary(manifest(human_labels=12, calibration=0)) == "12 human labels"
    assert set(ROW_UNITS) <= set(TABLES)
    assert summary(manifest(calibration=0)) == "nothing to do"


def test_what_the_pipeline_warns_of_is_said_once_and_only_while_a_flow_reports() -> None:
    told, log = Told(), logging.getLogger("darklode.judge")
    with reporting(OnceReporter(told)):
        for _ in range(2):
            log.warning("%s is a reasoning model", "fake")
            log.info("a detail")
    log.warning("nobody is there")
    assert told.told == ["fake is a reasoning model"]
