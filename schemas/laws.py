"""The settings of `laws run`: on which amounts of labels, whose, and how often it trains."""

from typing import Annotated

from pydantic import Field

from darklode.schemas.places import Place
from darklode.schemas.section import Bound, Section

OWN_SOURCES = ("labels", "bm25", "ict", "shuffled")
"""Those that a run has by itself."""


class LawSettings(Section):
    """The grid of `laws run`: each size of each source with each seed; what is trained is what `adapt` says."""

    sizes: Bound[tuple[Annotated[int, Field(ge=0)], ...]] = Field(
        (),
        description="labelled queries to learn from; 0: the encoder itself; empty: all, and up to six halves of them",
    )
    sources: Annotated[Bound[tuple[str, ...]], Place(or_name=True, names=OWN_SOURCES)] = Field(
        ("labels",),
        min_length=1,
        description="whose labels: the run's own, BM25's first text, a sentence of a text that asks for it (ict), as a "
        "control the run's own at other queries (shuffled), or a folder of `darklode generate`",
    )
    seeds: Bound[int] = Field(3, gt=0, description="how often each size is drawn and trained")
