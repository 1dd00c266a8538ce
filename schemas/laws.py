"""Settings of `laws run`: training sizes, label sources and seeds of the grid."""

from typing import Annotated, Literal

from pydantic import Field

from darklode.schemas.paths import PathField
from darklode.schemas.section import Bound, Section

TOWERS = "towers"
"""The value of `laws.trainer` that trains both towers."""

LABELS = "labels"
OWN_SOURCES = (LABELS, "bm25", "ict", "shuffled")
"""Label sources that every run has."""


class LawSettings(Section):
    """Grid of `laws run`: every size of every source with every seed."""

    trainer: Literal["adapt", "towers"] = Field(
        "adapt",
        description="What each grid point trains: adapt (an adapter, by the settings `adapt`), or towers (both towers, "
        "by the settings `dual`).",
    )
    train_sizes: Bound[tuple[Annotated[int, Field(ge=0)], ...]] = Field(
        (),
        description="Numbers of labelled training queries; 0 is the base encoder. Empty: all queries, and up to six "
        "successive halves.",
    )
    label_sources: Annotated[Bound[tuple[str, ...]], PathField(or_name=True, names=OWN_SOURCES)] = Field(
        ("labels",),
        min_length=1,
        description="Where training labels come from: labels (the run's), bm25 (BM25's top text), ict (inverse cloze "
        "task: a sentence of the text as its query), shuffled (the run's labels at other queries, a control), or a "
        "folder of `darklode generate`.",
    )
    n_seeds: Bound[int] = Field(3, gt=0, description="Repetitions of each size and source, each with its own sample.")
