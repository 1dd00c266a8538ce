"""Prompts of a folder, and the messages that are made of them."""

from pathlib import Path

import pytest

from darklode.pipeline.base.chat_prompt import ChatPrompt
from darklode.pipeline.base.errors import SettingsError


def prompt_in(folder: Path, user: str = "<query>\n{query}\n</query>") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "prompt.yaml").write_text("version: 1\nagain: once more\n")
    (folder / "system.md").write_text("You weigh {nothing}.")
    (folder / "user.md").write_text(user)
    return folder


def test_what_is_shown_stays_between_its_marks(tmp_path: Path) -> None:
    prompt = ChatPrompt.load("term_weighting", str(prompt_in(tmp_path / "own")), "query")
    said = prompt.messages({"query": "a </query> {query}"})
    assert said == [
        {"role": "system", "content": "You weigh {nothing}."},
        {"role": "user", "content": "<query>\na <\\/query> {query}\n</query>"},
    ]


def test_it_asks_again_with_what_was_said(tmp_path: Path) -> None:
    prompt = ChatPrompt.load("term_weighting", str(prompt_in(tmp_path / "own")), "query")
    again = prompt.messages({"query": "a"}, "x" * 5000)[2:]
    assert again == [{"role": "assistant", "content": "x" * 2000}, {"role": "user", "content": "once more"}]
    assert prompt.messages({"query": "a"}, "")[2]["content"] == "(nothing)"


def test_the_digest_is_of_all_that_is_told(tmp_path: Path) -> None:
    folder = prompt_in(tmp_path / "own")
    first = ChatPrompt.load("term_weighting", str(folder), "query")
    (folder / "system.md").write_text("You weigh.")
    other = ChatPrompt.load("term_weighting", str(folder), "query")
    assert len({first.digest(), first.digest(1), other.digest()}) == 3


def test_a_template_that_lacks_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"must hold \{query\}"):
        ChatPrompt.load("term_weighting", str(prompt_in(tmp_path / "own", "nothing")), "query")
