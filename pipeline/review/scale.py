"""The grades that a reviewer may give: those of the judge's prompt, or relevant and not relevant."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.errors import SettingsError
from pipeline.judges.prompt import Prompt, load_prompt
from schemas.settings import JudgeSettings

_NAME_CHARACTERS = 40


@dataclass(frozen=True)
class Scale:
    """What a reviewer may say of a pair.

    Attributes:
        names: what each grade is called, the highest first; empty where the prompt says nothing.
        relevant_from: grades from here on are relevant.
    """

    names: dict[int, str]
    relevant_from: int = 1

    @property
    def graded(self) -> bool:
        """Whether there are more grades than relevant and not relevant."""
        return len(self.names) > 2

    def called(self, grade: int | None) -> str:
        """An answer in words."""
        if grade is None:
            return "skipped"
        name = self.names.get(grade, "")
        return (f"{grade}: {name}" if name else str(grade)) if self.graded else name or str(grade)


BINARY = Scale({1: "relevant", 0: "not relevant"})


def scale_of(settings: JudgeSettings) -> Scale:
    """The scale of a run's judge; binary where it gives no grades, or its prompt is no longer there."""
    if settings.kind != "llm":
        return BINARY
    try:
        prompt = load_prompt(settings.prompt)
    except SettingsError:
        return BINARY
    if not prompt.graded:
        return BINARY
    grades = sorted(((grade, label) for label, grade in prompt.head.labels.items()), reverse=True)
    return Scale({grade: _name(prompt, label) for grade, label in grades}, prompt.head.relevant_from)


def _name(prompt: Prompt, label: str) -> str:
    """The label itself if it is a word, or what the system text says in a line such as `3: made for this query. …`."""
    if not label.isdigit():
        return label
    said = re.search(rf"^{re.escape(label)}: ([^.\n]{{1,{_NAME_CHARACTERS}}})[.\n]", prompt.system, re.MULTILINE)
    return said[1] if said else ""
