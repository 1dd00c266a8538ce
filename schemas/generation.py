"""Settings of `generate`: the query generator, the number of texts, and the filters."""

from pydantic import Field

from darklode.schemas.kinds import KindGroup, KindName, KindSection

GENERATORS = KindGroup("generators", "darklode.pipeline.generate.kinds")


class GenerateSettings(KindSection):
    """Generation of synthetic queries."""

    kind: KindName = "ict"
    max_texts: int = Field(
        1000,
        gt=0,
        description="Maximum number of texts per tenant to write a query for; texts of documents that no real query "
        "reaches come first.",
    )
    min_new_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Stop a tenant's generation when a smaller share of the next queries is expected to be unlike all "
        "earlier ones (Good-Turing). null: use all texts.",
    )
    round_trip_depth: int = Field(
        20,
        gt=0,
        description="Round-trip filter: keep a query if one of the pool's retrievers returns its source text within "
        "this rank.",
    )
    exclude_retrievers: tuple[str, ...] = Field(
        (),
        description="Retrievers that the round-trip filter ignores, such as the one that will be trained on the "
        "queries.",
    )
