"""The grades that a reviewer may give: those of the judge's prompt, or relevant and not relevant."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.errors import SettingsError
from pipeline.judges.prompt import Prompt, load_prompt
from schemas.settings import JudgeSettings

_NAME_CHARACTERS = 40


NOT_RELEVANT = "not relevant"


@dataclass(frozen=True)
class Scale:
    """What a reviewer may say of a pair, as qrels know it: 0 is not relevant, every other grade is.

    Attributes:
        names: what each grade is called, the highest first; empty where the prompt says nothing.
    """

    names: dict[int, str]

    @property
    def graded(self) -> bool:
        """Whether there are other grades than 1 and 0."""
        return self.names.keys() != {0, 1}

    def called(self, grade: int | None) -> str:
        """An answer in words."""
        if grade is None:
            return "skipped"
        name = self.names.get(grade, "")
        return f"{grade}: {name}" if self.graded and grade and name else name or str(grade)


BINARY = Scale({1: "relevant", 0: NOT_RELEVANT})


def scale_of(settings: JudgeSettings) -> Scale:
    """The scale of a run's judge; binary where it or its panel gives no grades, or its prompt is no longer there.

    Of a prompt's grades those from `relevant_from` on are offered; the others are all not relevant, as in `qrels`.
    """
    if settings.kind != "llm" or settings.panel:
        return BINARY
    try:
        prompt = load_prompt(settings.prompt)
    except SettingsError:
        return BINARY
    if not prompt.graded:
        return BINARY
    labels = {grade: label for label, grade in prompt.head.labels.items() if grade >= prompt.head.relevant_from}
    return Scale({grade: _name(prompt, labels[grade]) for grade in sorted(labels, reverse=True)} | {0: NOT_RELEVANT})


def _name(prompt: Prompt, label: str) -> str:
    """The label itself if it is a word, or what the system text says in a line such as `3: made for this query. …`."""
    if not label.isdigit():
        return label
    said = re.search(rf"^{re.escape(label)}: ([^.\n]{{1,{_NAME_CHARACTERS}}})[.\n]", prompt.system, re.MULTILINE)
    return said[1] if said else ""
