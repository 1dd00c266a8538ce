"""The files of a prompt, read and checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.prompts import PromptFolder, Template


def test_a_value_is_never_read_as_a_template() -> None:
    assert Template("{a} and {b}").fill({"a": "{b}", "b": "{a}"}) == "{b} and {a}"


def test_a_prompt_that_is_not_there_is_told_the_names_of_those_that_are() -> None:
    with pytest.raises(SettingsError, match=r"term_weighting\.prompt: there is no prompt none; .* one of default"):
        PromptFolder.find("term_weighting", "none")


@pytest.mark.parametrize("text", ["no placeholder", "{query} {query}", "{query} {other}"])
def test_a_template_holds_what_it_needs_and_nothing_else_once(tmp_path: Path, text: str) -> None:
    (tmp_path / "user.md").write_text(text)
    with pytest.raises(
        SettingsError, match=rf"the planner's prompt {tmp_path.name} .*user\.md must hold {{query}}, once"
    ):
        PromptFolder("planner", tmp_path).template("user.md", needed=("query",))


def test_a_file_that_holds_something_else_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "prompt.yaml").write_text("- 1\n- one\n")
    folder = PromptFolder("planner", tmp_path)
    with pytest.raises(SettingsError, match=r"cannot be used: prompt\.yaml"):
        folder.load("prompt.yaml", TypeAdapter(list[int]))
