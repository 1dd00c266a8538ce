"""The pages say what is there: their commands are commands, and their links lead somewhere."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from conftest import REPOSITORY
from flows.cli import app

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])
FENCES = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"""^(?:\$ )?(?:\.venv/bin/)?darklode ((?:'[^']*'|"[^"]*"|[^'"\n&|;])*)""", re.MULTILINE)
DARKLODE = typer.main.get_command(app)


def commands(page: Path) -> list[list[str]]:
    """Every call of `darklode` in the page's shell blocks, as words; an ellipsis stands for words left out."""
    blocks = [
        block for kind, block in FENCES.findall(page.read_text(encoding="utf-8")) if kind in {"", "sh", "console"}
    ]
    calls = [call for block in blocks for call in CALL.findall(block.replace("\\\n", " "))]
    return [[word for word in shlex.split(call, comments=True) if word not in {"…", "..."}] for call in calls]


def anchors(page: Path) -> set[str]:
    """What a link may name on the page: its headings, as a Git host makes anchors of them."""
    text = FENCES.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


CALLS = [
    (page.name, call) for page in PAGES for call in commands(page) if page.name not in {"CHANGELOG.md", "commands.md"}
]


@pytest.mark.parametrize(("page", "call"), CALLS, ids=[f"{page}: {shlex.join(call)[:60]}" for page, call in CALLS])
def test_a_command_on_a_page_can_be_given(page: str, call: list[str]) -> None:
    command: Any = DARKLODE
    words = list(call)
    while hasattr(command, "commands"):
        name = words.pop(0)
        if name.startswith("--"):
            assert name == "--version"
            return
        assert name in command.commands, f"{page}: there is no command {name}"
        command = command.commands[name]
    known = {option for one in command.params for option in [*one.opts, *one.secondary_opts]} | {"--help"}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known, f"{page}: {command.name} has no {given - known}"


def test_pages_have_commands() -> None:
    assert len(CALLS) > 50
    assert {"README.md", "tutorial.md", "judge.md", "mining.md"} <= {page for page, _ in CALLS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCES.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {target}"
