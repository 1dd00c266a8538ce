"""The settings of `adapt-encoder`: what a query encoder is trained on, by which method, and for how long."""

from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.section import Bound, NoRow, Rate, Section, Share

Method = Literal["linear", "ffn", "closed_form", "whitened", "lora", "top_n", "full"]

HEADS: tuple[Method, ...] = ("linear", "ffn", "closed_form", "whitened")
"""Layers on the query vectors, which leave the encoder as it is."""

METHOD = ("method", "rank", "alpha", "targets", "top_layers")
"""The settings that say what trained weights are; the others say how they came to be."""

SEEDS = 3
"""How often each method is trained where methods are compared."""


class AdaptSettings(Section):
    """How the query encoder is adapted; documents and their vectors stay as they are."""

    method: Method = Field(
        "linear",
        description="a head on the query vectors: one linear layer, three with GELU (ffn), or one linear layer solved "
        "for instead of trained (closed_form; whitened, which needs no labels of training queries); or the query "
        "encoder itself: LoRA, its last layers (top_n), all of it",
    )
    start: Literal["base", "whitened"] = Field(
        "whitened",
        description="what linear, lora, top_n and full begin as: the base, or the whitening that is best on "
        "validation, the base where none is better (DevRev-Search: base)",
    )
    rank: int = Field(32, gt=0, description="of LoRA (DevRev-Search: 32 to 64 are best)")
    alpha: int | None = Field(None, gt=0, description="LoRA is scaled by alpha / rank; null: alpha is the rank")
    targets: tuple[str, ...] = Field(
        (), description="ends of the names of the linear layers that LoRA lies on, such as query, value; empty: all"
    )
    top_layers: int = Field(2, gt=0, description="how many of the last layers top_n trains")
    tenant: str | None = Field(None, min_length=1, description="whose rows; null: the only tenant of the runs")
    sources: tuple[str, ...] = Field(
        (), description="sources of triplets whose positives are learned from, such as pooled; empty: all"
    )
    min_probability: Share = Field(
        0.0,
        description="a judge's positive is learned from at this probability on; one without any is, too, unless its "
        "log-probabilities tie or contradict it",
    )
    pairs: Literal["one", "all"] = Field(
        "one", description="one positive drawn whenever a query's turn comes, or a turn for each of its positives"
    )
    temperature: float = Field(0.03, gt=0, description="of InfoNCE (DevRev-Search, A.4: 0.1)")
    in_batch: bool = Field(
        True, description="texts of the batch's other queries are negatives, too (DevRev-Search: no)"
    )
    soft_targets: bool = Field(
        False,
        description="the loss aims at the judge's probabilities of a query's candidates, by KL, instead of at its "
        "positive alone; a positive without one counts 1",
    )
    anchor: float = Field(0.5, ge=0, description="weight of the squared distance from the base's query vector")
    negatives: int = Field(16, gt=0, description="mined hard negatives of each positive (DevRev-Search, A.4)")
    draw: int = Field(8, gt=0, description="of them, drawn at each turn (DevRev-Search, A.4)")
    margin: Share = Field(0.05, description="a negative that nobody judged scores below s⁺ − |s⁺|·margin")
    same_document: bool = Field(
        False, description="chunks of a document that holds a positive of the query may be its negatives"
    )
    refresh_steps: int = Field(100, gt=0, description="steps between two minings of negatives (DevRev-Search: 200)")
    steps: int = Field(1000, gt=0, description="most steps; the best one on validation is kept")
    batch: int = Field(64, gt=0, description="queries of a step")
    learning_rates: Bound[tuple[Rate, ...]] = Field(
        (),
        description="tried one after the other, the best on validation is kept (DevRev-Search: 5e-6); empty: the "
        "method's own, 3e-5, 1e-4 and 3e-4 of heads and LoRA, 5e-6, 1e-5 and 3e-5 of top_n and full",
    )
    judge_holes: int = Field(
        1000,
        ge=0,
        description="pairs at most that the judge of a build's labels is asked for: texts without a label in the first "
        "ten of the test queries, by base and adapted alike, before they are compared; 0: none",
    )
    report_to: NoRow[tuple[str, ...]] = Field(
        (), description="where the trainer of lora, top_n and full logs to: tensorboard, wandb, mlflow; empty: nowhere"
    )

    @model_validator(mode="after")
    def _draws_from_the_mined(self) -> Self:
        if self.draw > self.negatives:
            raise ValueError(f"draw {self.draw} must not exceed negatives {self.negatives}")
        return self
