"""darklode search: one system or two, for a person and as JSON, and what it refuses."""

import json
import re
from pathlib import Path

import pytest
from rich.text import Text

from darklode.flows.commands.search import _cell
from darklode.flows.open_systems import systems
from darklode.pipeline.base.errors import CommandLineError
from darklode.pipeline.base.highlighting import Highlighter
from darklode.pipeline.base.terms import Analyzer
from darklode.schemas.settings import Settings
from helpers.adapted import word
from helpers.commands import Call, one_line

QUERY = f"how {word(7)}"


def test_the_words_of_the_query_stand_in_the_texts_found(shipped: Path, call: Call) -> None:
    shown = call("search", shipped / "run", QUERY)
    assert (shown.code, shown.err) == (0, "")
    first = shown.out.splitlines()
    assert first[0].split() == ["bm25"]
    assert re.match(r"1  train-001-0  \d+\.\d{3}$", first[1].rstrip())
    assert word(7) in first[2]


def test_two_systems_stand_side_by_side(shipped: Path, call: Call) -> None:
    adapter = str(shipped / "adapter")
    shown = call("search", shipped / "run", QUERY, "--encoder", "base", "--encoder", adapter)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[0].split() == ["base", adapter]
    assert re.search(r"was \d+|new|same place", shown.out)
    told = json.loads(call("search", shipped / "run", QUERY, "--encoder", "base", "--encoder", adapter, "--json").out)
    base, adapted = told["systems"]
    assert (base["system"], adapted["system"]) == ("base", adapter)
    ids = [[row["text_id"] for row in one["hits"]] for one in told["systems"]]
    assert told["overlap"] == len(set(ids[0]) & set(ids[1])) < 10 == len(ids[0])
    assert set(base["hits"][0]) == {"rank", "text_id", "doc_id", "title", "heading", "text", "score"}


def test_words_are_marked_and_texts_from_outside_are_harmless() -> None:
    row = {"text_id": "a", "rank": 1, "score": 0.5, "title": "[red]Reset", "doc_id": "d", "heading": None}
    cell = _cell([row | {"text": "to \x1b[31m reset [/] it"}], 0, Highlighter.of_terms(Analyzer(), "resets"), {"a": 3})
    assert isinstance(cell, Text)
    assert cell.plain.splitlines()[:2] == ["[red]Reset  0.500  was 3", "to �[31m reset [/] it"]
    marked = [cell.plain[span.start : span.end] for span in cell.spans if "yellow" in str(span.style)]
    assert marked == ["Reset", "reset"]


def test_base_is_what_the_adapter_beside_it_or_the_only_encoder_says() -> None:
    with pytest.raises(CommandLineError, match="which have none; name an encoder of the settings"):
        systems(Settings(), mined=False, encoders=["base"], retrievers=[], adapters={})


def test_what_cannot_be_searched_is_refused(shipped: Path, tmp_path: Path, call: Call) -> None:
    run, adapter = shipped / "run", shipped / "adapter"
    one_line(call("search", tmp_path / "gone", "x"), "holds no run")
    one_line(call("search", adapter, "x"), r"holds an adapted encoder \(`darklode adapt`\), not a run")
    one_line(call("search", run, " "), "the query is empty", 2)
    one_line(call("search", run, "x", "--retriever", "bm26"), "unknown retriever bm26; did you mean bm25", 2)
    one_line(
        call("search", run, "x", "--encoder", "base", "--encoder", "base"), "give one system or two different ones", 2
    )
    one_line(
        call("search", run, "x", "--encoder", adapter, "--tenant", "other"), "is for tenant acme, not for other", 3
    )
    one_line(call("search", run, "x", "--tenant", "other"), "has no tenant other; choose from acme")
    one_line(call("search", run, "x", "--encoder", tmp_path / "gone"), "gone: the folder does not exist")
