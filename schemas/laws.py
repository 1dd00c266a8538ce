"""The settings of `laws run`: on which amounts of labels, whose, and how often it trains."""

from typing import Annotated, Literal

from pydantic import Field

from darklode.schemas.paths import PathField
from darklode.schemas.section import Bound, Section

TOWERS = "towers"
"""What `laws.trainer` says of both towers."""

LABELS = "labels"
OWN_SOURCES = (LABELS, "bm25", "ict", "shuffled")
"""Those that a run has by itself."""


class LawSettings(Section):
    """The grid of `laws run`: each size of each source with each seed."""

    trainer: Literal["adapt", "towers"] = Field(
        "adapt",
        description="what each cell trains: what `adapt` would, or both towers as stage 1 of `train-towers` does, by "
        "the settings of `dual`",
    )
    sizes: Bound[tuple[Annotated[int, Field(ge=0)], ...]] = Field(
        (),
        description="labelled queries to learn from; 0: the encoder itself; empty: all, and up to six halves of them",
    )
    sources: Annotated[Bound[tuple[str, ...]], PathField(or_name=True, names=OWN_SOURCES)] = Field(
        ("labels",),
        min_length=1,
        description="whose labels: the run's own, BM25's first text, a sentence of a text that asks for it (ict), as a "
        "control the run's own at other queries (shuffled), or a folder of `darklode generate`",
    )
    seeds: Bound[int] = Field(3, gt=0, description="how often each size is drawn and trained")
