import re
from typing import Any

import typer.main

from darklode.flows.cli import app
from darklode.flows.commands.reference import PAGE, PAGE_HEAD
from helpers.runs import REPOSITORY

TEXT = (REPOSITORY / "docs" / PAGE).read_text(encoding="utf-8")
ADVICE = "run: python -m darklode.flows.commands.reference"


def commands(group: Any, prefix: str) -> dict[str, Any]:
    found = {}
    for name, command in group.commands.items():
        found[f"{prefix} {name}"] = command
        found |= commands(command, f"{prefix} {name}") if hasattr(command, "commands") else {}
    return found


COMMANDS = commands(typer.main.get_command(app), "darklode")
SECTIONS = dict(re.findall(r"^##+ `(.+?)`\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))


def test_the_page_has_every_command_and_no_other() -> None:
    assert list(SECTIONS) == list(COMMANDS), ADVICE
    assert TEXT.startswith(PAGE_HEAD)


def test_a_command_is_described_as_its_help_says() -> None:
    for name, command in COMMANDS.items():
        section = SECTIONS[name]
        listed = re.findall(r"^\* `(--[\w-]+)", section, re.MULTILINE)
        known = [one.opts[0] for one in command.params if one.param_type_name == "option"]
        assert listed == known + ["--help"] * ("--help" not in known), ADVICE
        words = " ".join(section.split())
        for text in [command.help, command.epilog, *(one.help for one in command.params if one.name != "help")]:
            assert " ".join((text or "").split()) in words, ADVICE


def test_every_option_is_explained() -> None:
    unexplained = [(name, one.name) for name, command in COMMANDS.items() for one in command.params if not one.help]
    assert not unexplained
