"""Grades that reviewers may give: those of the judge's prompt, or relevant and not relevant."""

from __future__ import annotations

from dataclasses import dataclass

from darklode.schemas.judging import JudgeSettings

NOT_RELEVANT = "not relevant"


@dataclass(frozen=True)
class Scale:
    """Grades of a review, as in qrels: 0 is not relevant, all others are.

    Attributes:
        names: name of each grade, highest first; empty if the prompt has none.
    """

    names: dict[int, str]

    @property
    def is_graded(self) -> bool:
        """Whether there are grades other than 1 and 0."""
        return self.names.keys() != {0, 1}

    def grade_name(self, grade: int | None) -> str:
        """An answer in words."""
        if grade is None:
            return "skipped"
        name = self.names.get(grade, "")
        return f"{grade}: {name}" if self.is_graded and grade and name else name or str(grade)


BINARY = Scale({1: "relevant", 0: NOT_RELEVANT})


def scale_of(settings: JudgeSettings) -> Scale:
    """The scale of a run's judge or panel; binary without grades, or if the prompt is missing.

    A prompt's grades from `relevant_from` up are offered; lower ones are all not relevant, as in `qrels`.
    """
    grades = settings.verdict_grades()
    return Scale(grades | {0: NOT_RELEVANT}) if grades else BINARY
