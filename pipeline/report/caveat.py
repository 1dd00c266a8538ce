"""A caveat of a run: a headline of one line, the full sentences, and the figure that shows it."""

from collections.abc import Iterable
from dataclasses import dataclass

FAVORED_SYSTEMS = "The labels favour some of the systems"


@dataclass(frozen=True)
class Caveat:
    """What a user of a run should know.

    Attributes:
        headline: one short line.
        text: sentences with the numbers and what to do; empty if the headline says it all.
        figure: key of the report's figure that shows it; empty if there is none.
    """

    headline: str
    text: str = ""
    figure: str = ""

    @property
    def sentences(self) -> str:
        """The headline and the text, for plain text."""
        return f"{self.headline}: {self.text}" if self.text else self.headline


def with_text(caveats: Iterable[Caveat]) -> list[Caveat]:
    """The caveats that apply: those with a text."""
    return [caveat for caveat in caveats if caveat.text]
