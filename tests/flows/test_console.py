"""What a person at a terminal sees, and what a log gets where there is none."""

import re

import pyarrow as pa
import pytest
from rich.console import Console

from darklode.flows import console as module
from darklode.flows.console import Bars, Lines, cell, format_stage, printable, reporter, show, show_records
from darklode.pipeline.base.artifacts import FunnelStep, Manifest
from helpers.commands import CONTROL

DONE = Manifest("clean", "f", {}, {}, {}, [FunnelStep("clean", "queries", 1200, "[b]queries", 900)], 2.345)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (True, "True"),
        (12345, "12,345"),
        (0.12345, "0.123"),
        ("two\n lines", "two lines"),
        ("[red]x[/red]", r"\[red]x\[/red]"),
        ("\x1b[31mred\x07", "�[31mred�"),
        ("x" * 101, "x" * 99 + "…"),
    ],
)
def test_a_value_as_a_person_reads_it(value: object, said: str) -> None:
    assert cell(value) == said


def test_a_text_from_outside_cannot_steer_the_terminal_and_keeps_its_lines() -> None:
    assert printable("a\x00b\nc\ud800") == "a�b\nc�"


def test_a_finished_stage_is_one_line() -> None:
    assert re.sub(r"\s+", " ", format_stage("clean", DONE, redone=True)) == (
        r"[green]✓[/green] clean 1,200 queries → 900 \[b]queries [dim]2.3 s[/dim]"
    )
    assert format_stage("clean", DONE, redone=False).endswith("[dim]up to date[/dim]")


def test_a_table_shows_numbers_to_the_right_and_long_cells_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.console, "width", 200)
    show(pa.table({"name": ["[b]a", "x" * 300], "n": [5, 1234]}), "[title]")
    title, head, first, second, *_ = capsys.readouterr().out.splitlines()
    assert title == "[title]"
    assert first.split() == ["[b]a", "5"]
    assert head.rstrip().endswith("n")
    assert first.rstrip().endswith("    5"), "numbers stand to the right"
    assert second.split() == ["x" * 99 + "…", "1,234"]


def test_at_80_columns_no_word_is_broken_and_no_line_is_longer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.console, "width", 80)
    reason = "uncertain by labels.training_precision 389"
    counts = {"step": ["ingest.documents", "answers"], "in": [41_813, 338], "out": [726_039, 255]}
    show(
        pa.table(counts | {"of": ["rows", "queries with a positive"], "dropped": [reason, "no positive found 80"]}),
        "F",
    )
    show_records(pa.table({"query": ["how to " * 30], "hardest negative": ["a `code` [b] " * 9]}), "T")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert {"ingest.documents", "726,039", "labels.training_precision", "positive", "hardest", "[b]"} <= set(words)


def test_lines_say_what_starts_and_ends_and_how_far_it_is_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Lines()
    lines.start("clean", "[red]pool.depth: 1 → 2")
    lines.progress("clean", 1, 10, "soon")
    monkeypatch.setattr(Lines, "SECONDS", -1)
    lines.progress("clean", 2500, 10_000, "half\x1b")
    lines.progress("clean", 7, None, "")
    lines.finish("clean", DONE, redone=True)
    lines.say("[x] said")
    lines.table("title", pa.table({"a": [1]}))
    printed = capsys.readouterr().out
    assert printed.splitlines()[:3] == ["clean: [red]pool.depth: 1 → 2", "clean: 2,500 of 10,000  half�", "clean: 7"]
    assert "✓ clean" in printed
    assert "[x] said" in printed
    assert "soon" not in printed
    assert not CONTROL.search(printed.replace("\n", ""))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A terminal of 160 columns that records what is on it."""
    made = Console(force_terminal=True, width=160, record=True, highlight=False)
    monkeypatch.setattr(module, "console", made)
    return made


def test_bars_give_way_to_a_line_for_each_stage(terminal: Console, capsys: pytest.CaptureFixture[str]) -> None:
    bars = reporter()
    assert isinstance(bars, Bars)
    bars.progress("clean", 1, 2, "before the start nothing happens")
    bars.start("clean", "new")
    bars.progress("clean", 1, 2, "half [way]")
    bars.start("split", "the stage before was interrupted")
    bars.progress("split", 3, 4, "more")
    bars.finish("split", DONE, redone=False)
    bars.say("all [done]")
    bars.table("title", pa.table({"a": [1]}))
    text = terminal.export_text()
    assert "✓ split" in text
    assert "all [done]" in text
    assert bars._task is None


def test_where_there_is_no_terminal_there_are_lines() -> None:
    assert isinstance(reporter(), Lines)
