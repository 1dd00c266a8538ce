"""The command line as a whole: its commands, their help, and its errors."""

import re
from pathlib import Path

import pytest
import typer

from darklode.flows import cli
from helpers.commands import DARKLODE, Call, Environment, one_line, run_command

pytestmark = pytest.mark.server

COMMANDS = [name for name in cli.COMMANDS if name != "judge"]  # a group, with pages of its own


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option(call: Call, command: str) -> None:
    shown = call(command, "--help")
    declared = typer.main.get_command(cli.app).commands[command]
    options = [name for parameter in declared.params for name in parameter.opts if name.startswith("--")]
    assert shown.code == 0
    assert declared.help in " ".join(shown.out.split())
    assert [name for name in options if not re.search(rf"{name}\b", shown.out)] == []
    assert (f"Example: darklode {command} " in shown.out) == bool(declared.epilog)
    assert not re.search(r"<\w+.*?>|\{[A-Z]+\}", shown.out), "a Python type, or an argument in braces"


def test_help_of_the_whole_lists_the_commands(call: Call) -> None:
    shown = call("--help")
    assert shown.code == 0
    panels = [re.findall(r"^│ (\w[\w-]*)  ", panel, re.M) for panel in re.split(r"^╭─ ", shown.out, flags=re.M)[2:]]
    assert panels == [names.split() for names in cli.COMMAND_GROUPS.values()]
    assert re.findall(r"^╭─ (\w+) ", shown.out, re.M) == ["Options", *cli.COMMAND_GROUPS]
    assert max(map(len, shown.out.splitlines())) <= 80
    assert re.fullmatch(r"darklode \d+\.\d+\.\d+\n", call("--version").out)


@pytest.mark.parametrize("arguments", [[], ["--debug"]])
def test_without_a_command_three_are_suggested(call: Call, arguments: list[str]) -> None:
    shown = call(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert re.findall(r"^  (darklode .+)", shown.err, re.M) == list(cli.FIRST_COMMANDS)
    assert max(map(len, shown.err.splitlines())) <= 80
    first_words = {command.split()[1] for command in cli.FIRST_COMMANDS}
    assert first_words < set(cli.COMMAND_GROUPS["Start"].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [("darklode st", "status"), ("darklode judge ca", "calibration"), ("darklode build --ch", "--check")],
)
def test_the_shell_completes_commands_and_options(alone: Environment, words: str, offered: str) -> None:
    asked = {"_DARKLODE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    shown = run_command([DARKLODE], dict(alone) | asked)
    assert (shown.code, shown.out.split(), shown.err) == (0, [offered], "")


def test_a_mistake_ends_the_process_with_1_and_one_line(alone: Environment, tmp_path: Path) -> None:
    one_line(run_command([DARKLODE, "status", str(tmp_path)], alone), "holds no run; make one with `darklode build")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--docs", ".", "--queries", ".", "--out", "x", "--config", "n.yaml"], "no settings file n.yaml"),
        (["status", "nothing"], "nothing holds no run; make one with `darklode build --out"),
        (["status", "nothing", "--settings"], "nothing holds no run"),
        (["query", "nothing", "SELECT 1"], "nothing holds no run"),
        (["export", "nothing", "--format", "beir", "--to", "x"], "nothing holds no run"),
        (["status", "gs://bucket/run"], "gs:// is not supported for runs"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    one_line(call(*arguments), message, 1 + ("settings file" in message))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--docs", "x"], "Missing option '--queries'"),
        (["query", "run", "SELECT 1", "--format", "xml"], "'xml' is not one of 'table', 'csv', 'json'"),
        (["status"], "Missing argument 'RUN'"),
        (["status", "run", "--sett"], "No such option"),
        (["bild"], "No such command 'bild'"),
    ],
)
def test_usage_errors_end_with_2(call: Call, arguments: list[str], message: str) -> None:
    shown = call(*arguments)
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.replace("│", " ").split())
    assert "Traceback" not in shown.err
