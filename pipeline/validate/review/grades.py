"""The grades that a reviewer may give: those of the judge's prompt, or relevant and not relevant."""

from __future__ import annotations

from dataclasses import dataclass

from darklode.schemas.judging import JudgeSettings

NOT_RELEVANT = "not relevant"


@dataclass(frozen=True)
class Scale:
    """What a reviewer may say of a pair, as qrels know it: 0 is not relevant, every other grade is.

    Attributes:
        names: what each grade is called, the highest first; empty where the prompt says nothing.
    """

    names: dict[int, str]

    @property
    def is_graded(self) -> bool:
        """Whether there are other grades than 1 and 0."""
        return self.names.keys() != {0, 1}

    def grade_name(self, grade: int | None) -> str:
        """An answer in words."""
        if grade is None:
            return "skipped"
        name = self.names.get(grade, "")
        return f"{grade}: {name}" if self.is_graded and grade and name else name or str(grade)


BINARY = Scale({1: "relevant", 0: NOT_RELEVANT})


def scale_of(settings: JudgeSettings) -> Scale:
    """The scale of a run's judge; binary where it or its panel gives no grades, or its prompt is no longer there.

    Of a prompt's grades those from `relevant_from` on are offered; the others are all not relevant, as in `qrels`.
    """
    grades = {} if settings.panel else settings.grades()
    return Scale(grades | {0: NOT_RELEVANT}) if grades else BINARY
