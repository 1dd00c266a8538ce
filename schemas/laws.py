"""The settings of `laws run`: on which amounts of labels, whose, and how often it trains."""

from typing import Annotated, Literal

from pydantic import Field

from darklode.schemas.section import Bound, Section

LabelSource = Literal["labels", "bm25", "ict", "shuffled"]


class LawSettings(Section):
    """The grid of `laws run`: each size of each source with each seed; what is trained is what `adapt` says."""

    sizes: Bound[tuple[Annotated[int, Field(ge=0)], ...]] = Field(
        (),
        description="labelled queries to learn from; 0: the encoder itself; empty: all, and up to six halves of them",
    )
    sources: Bound[tuple[LabelSource, ...]] = Field(
        ("labels",),
        min_length=1,
        description="whose labels: the run's own, BM25's first text, a sentence of a text that asks for it (ict), and "
        "as a control the run's own at other queries (shuffled)",
    )
    seeds: Bound[int] = Field(3, gt=0, description="how often each size is drawn and trained")
