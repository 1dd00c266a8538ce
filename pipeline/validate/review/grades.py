"""Grades that reviewers may give: those of the judge, those asked for, or relevant and not relevant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from darklode.schemas.settings import Settings

NOT_RELEVANT = "not relevant"


@dataclass(frozen=True)
class Scale:
    """Grades of a review, as in qrels: 0 is not relevant, all others are.

    Attributes:
        names: name of each grade, highest first; a name may be empty.
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


def scale_of(settings: Settings, max_grade: int | None = None, fitted_grades: Iterable[int] = ()) -> Scale:
    """The scale of a run's review: up to `max_grade`, or the grades of its judge or panel, or the fitted ones.

    It is binary with `labels.binary`, without grades, or if the prompt is missing. A prompt's grades from
    `relevant_from` up are offered; lower ones are all not relevant, as in `qrels`.

    Args:
        settings: settings of the run.
        max_grade: highest grade to give; None: the judge's grades.
        fitted_grades: grades fitted to the judge's scores, see `grade_thresholds`.
    """
    if settings.labels.binary:
        return BINARY
    unnamed = range(max_grade, 0, -1) if max_grade else ()
    grades = dict.fromkeys(unnamed, "") or settings.judge.verdict_grades()
    grades = grades or dict.fromkeys(sorted(fitted_grades, reverse=True), "")
    return Scale(grades | {0: NOT_RELEVANT}) if grades else BINARY
