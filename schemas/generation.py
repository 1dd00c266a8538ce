"""The settings of `generate`: who writes queries, for how many texts, and what a query has to pass."""

from pydantic import Field

from darklode.schemas.kinds import KindGroup, KindSection

GENERATORS = KindGroup("generators", "darklode.pipeline.generate.kinds")


class GenerateSettings(KindSection):
    """Who writes queries; each kind has keys of its own."""

    kind: str = Field("ict", description="who writes; each kind has keys of its own")
    texts: int = Field(
        1000,
        gt=0,
        description="texts of each tenant that a query is written for, at most; those of documents that no query "
        "reached come first",
    )
    round_trip: int = Field(
        20, gt=0, description="a query stays where one of the retrievers finds its own text among so many"
    )
    leave_out: tuple[str, ...] = Field(
        (), description="retrievers of the pool that have no say in that: the one that is to be trained"
    )
