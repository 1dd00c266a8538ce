"""What `darklode plan-scale` is told: machines, GPUs, encoders, prices, and how the work is cut."""

from typing import Annotated

from pydantic import Field

from darklode.schemas.section import Section, Share

Positive = Annotated[float, Field(gt=0)]
Money = Annotated[float, Field(ge=0)]


class Machines(Section):
    """Machines of one kind, which run the stages."""

    count: int = Field(gt=0, description="how many there are")
    cores: int = Field(gt=0, description="of each")
    memory_gb: Positive = Field(description="of each")
    price_per_hour: Money = Field(0.0, description="of one machine")
    speed: Positive = Field(1.0, description="of a core, against one of the machine that was measured")


class Gpus(Section):
    """GPUs, which encode."""

    count: int = Field(gt=0, description="how many there are")
    price_per_hour: Money = Field(0.0, description="of one")


class EncoderCosts(Section):
    """An encoder among the pool's retrievers."""

    texts_per_second: Positive = Field(description="texts that one GPU encodes")
    dimensions: int = Field(gt=0, description="numbers of a vector")
    bytes_per_number: int = Field(4, gt=0, description="4: float32, 2: float16 (cache.vector_dtype)")


class Prices(Section):
    """What is paid besides machines."""

    prompt_tokens: Money = Field(0.0, description="a million of them, of the judge")
    completion_tokens: Money = Field(0.0, description="a million of them, of the judge")
    storage_gb_month: Money = Field(0.0, description="a gigabyte for a month")


class Workload(Section):
    """How the job is cut, and what makes what; null: as it was measured."""

    tenants: int = Field(1, gt=0, description="parts of equal size that are searched apart: tenants, or shards as such")
    retrievers: tuple[str, ...] = Field(("bm25",), description="built-in retrievers of the pool; encoders come with it")
    characters: Positive = Field(500.0, description="of a document; 500 are a chunk")
    impressions: Positive = Field(10.0, description="documents shown for a query of the log")
    kept: Annotated[float, Field(gt=0, le=1)] | None = Field(None, description="queries that cleaning keeps of each")
    candidates: Positive | None = Field(None, description="pairs in the pool for each kept query")
    judged: Share = Field(1.0, description="share of the pairs that the judge is asked (judge.strategy, judge.cascade)")
    prompt_tokens: Positive | None = Field(None, description="of a judged pair")
    completion_tokens: Positive | None = Field(None, description="of its answer")


class Hardware(Section):
    """A file for `darklode plan-scale`."""

    machines: Machines
    gpus: Gpus | None = None
    encoders: dict[str, EncoderCosts] = Field(default_factory=dict)
    prices: Prices = Prices()
    work: Workload = Workload()
