"""Input file of `darklode plan-scale`: machines, GPUs, encoders, prices and workload."""

from typing import Annotated

from pydantic import Field

from darklode.schemas.section import Section, Share

Positive = Annotated[float, Field(gt=0)]
Money = Annotated[float, Field(ge=0)]


class Machines(Section):
    """Machines that run the stages, all alike."""

    count: int = Field(gt=0, description="Number of machines.")
    cores: int = Field(gt=0, description="CPU cores per machine.")
    memory_gb: Positive = Field(description="Memory per machine, in GB.")
    price_per_hour: Money = Field(0.0, description="Price of a machine per hour.")
    speed: Positive = Field(1.0, description="Speed of a core relative to the measured machine.")


class Gpus(Section):
    """GPUs that run the encoders."""

    count: int = Field(gt=0, description="Number of GPUs.")
    price_per_hour: Money = Field(0.0, description="Price of a GPU per hour.")


class EncoderCosts(Section):
    """An encoder of the pool."""

    texts_per_second: Positive = Field(description="Texts that one GPU encodes per second.")
    dimensions: int = Field(gt=0, description="Dimensions of a vector.")
    bytes_per_number: int = Field(
        4, gt=0, description="Bytes per dimension (cache.vector_dtype): float32 4, float16 2."
    )


class Prices(Section):
    """Prices besides machines."""

    prompt_tokens: Money = Field(0.0, description="Price of a million prompt tokens of the judge.")
    completion_tokens: Money = Field(0.0, description="Price of a million completion tokens of the judge.")
    storage_gb_month: Money = Field(0.0, description="Price of a GB stored for a month.")


class Workload(Section):
    """Shape of the workload; null: as in the measurements."""

    tenants: int = Field(1, gt=0, description="Number of tenants of equal size; each is searched separately.")
    retrievers: tuple[str, ...] = Field(("bm25",), description="Built-in retrievers of the pool, besides `encoders`.")
    characters: Positive = Field(500.0, description="Characters per document; a chunk has 500.")
    impressions: Positive = Field(10.0, description="Impressions per query of the search log.")
    kept: Annotated[float, Field(gt=0, le=1)] | None = Field(None, description="Share of queries that pass cleaning.")
    candidates: Positive | None = Field(None, description="Pairs in the pool per query.")
    judged: Share = Field(1.0, description="Share of the pairs that are judged, below 1 with judge.strategy adaptive.")
    prompt_tokens: Positive | None = Field(None, description="Prompt tokens per judged pair.")
    completion_tokens: Positive | None = Field(None, description="Completion tokens per judged pair.")


class Hardware(Section):
    """Content of the file for `darklode plan-scale --hardware`."""

    machines: Machines
    gpus: Gpus | None = None
    encoders: dict[str, EncoderCosts] = Field(default_factory=dict)
    prices: Prices = Prices()
    work: Workload = Workload()
