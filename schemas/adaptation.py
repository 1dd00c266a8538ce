"""Settings of `adapt-encoder`: training data, method and schedule of the query encoder's adaptation."""

from math import ceil
from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.section import Section
from darklode.schemas.shared import (
    AllowSameDocumentNegatives,
    LearningRates,
    MaxStepsDescription,
    NumNegatives,
    RelativeMargin,
    ReportTo,
    TrainBatchSize,
)

Method = Literal["linear", "ffn", "closed_form", "whitened", "lora", "top_n", "full"]

HEADS: tuple[Method, ...] = ("linear", "ffn", "closed_form", "whitened")
"""Layers on the query vectors; the encoder itself stays as it is."""

HEAD_STEPS = 1000
"""Default steps of heads: seconds to minutes."""

ENCODER_EPOCHS, MIN_ENCODER_STEPS, MAX_ENCODER_STEPS = 5, 300, 5000
"""Default length of encoder training. MiniLM takes about a second per step and core. On homedepot 300 steps (5 epochs)
were better than the start of 1,000, whose learning rate falls later; on insuranceqa 150 and 300 (7 epochs) were equal.
"""

METHOD = ("method", "lora_rank", "lora_alpha", "target_modules", "top_layers")
"""The settings that define the architecture of the trained weights; the others define how they were trained."""

SEEDS = 3
"""Training runs per method when methods are compared."""

MIN_SHARE = 0.95
"""Share of re-embedding's first ten that a model swap must find: the lower end of what Drift-Adapter reports
(arXiv:2509.23471).
"""

SAMPLE_TEXTS = 20_000
"""Maximum number of texts that a model swap embeds with both encoders."""


class AdaptSettings(Section):
    """Adaptation of the query encoder; documents and their vectors stay unchanged."""

    method: Literal["auto"] | Method = Field(
        "auto",
        description="What is trained. A head on the query vectors: linear (one layer), ffn (three layers with GELU), "
        "closed_form (a linear layer by least squares), whitened (whitening; needs no labelled training queries). Or "
        "the query encoder: lora, top_n (its last layers), full. auto: full if at least 100 validation queries share "
        "no positive with training and darklode[train] is installed; linear otherwise, and with --tenants, "
        "--warm-start, init: term_vectors, and in nightly-adapt and laws.",
    )
    init: Literal["base", "whitened", "term_vectors"] = Field(
        "whitened",
        description="Initial weights of linear, lora, top_n and full: the base encoder (DevRev-Search), or the "
        "whitening that is best on validation, if it beats the base; term_vectors (linear, whitened): also mixed with "
        "vectors of the query's tokens, if that is better still.",
    )
    lora_rank: int = Field(32, gt=0, description="LoRA rank r (DevRev-Search, Table 7: 32 and 64 are best).")
    lora_alpha: int | None = Field(
        None, gt=0, description="LoRA alpha: updates are scaled by alpha / rank. null: equal to the rank."
    )
    target_modules: tuple[str, ...] = Field(
        (), description="Name suffixes of the linear layers that get LoRA, such as query, value. Empty: all."
    )
    top_layers: int = Field(2, gt=0, description="Number of last layers that top_n trains.")
    tenant: str | None = Field(
        None, min_length=1, description="Tenant whose rows are used. null: the only tenant of the runs."
    )
    sources: tuple[str, ...] = Field(
        (), description="Triplet sources to train on, such as pooled or click_one_hop. Empty: all."
    )
    positives_per_query: Literal["one", "all"] = Field(
        "one", description="Per epoch, use one randomly drawn positive of each query, or all of them."
    )
    temperature: float = Field(
        0.03, gt=0, description="InfoNCE temperature (DevRev-Search, A.4: 0.1, without in-batch negatives)."
    )
    in_batch_negatives: bool = Field(
        True, description="Use the texts of the other queries in the batch as negatives, too (DevRev-Search: no)."
    )
    targets: Literal["one_hot", "weighted", "soft"] = Field(
        "one_hot",
        description="Use of the judge's probabilities. one_hot: none. weighted: the loss of each training positive is "
        "multiplied by its probability, 1 without one, divided by the mean (train-towers and laws, too). soft: KL "
        "divergence to the probabilities of a query's candidates instead of InfoNCE with one positive.",
    )
    l2_to_base: float = Field(
        0.5,
        ge=0,
        description="Weight of the squared distance between adapted and base query vector, a regulariser "
        "(DevRev-Search: 0).",
    )
    num_negatives: NumNegatives = 16
    negatives_per_step: int = Field(
        8,
        gt=0,
        description="Number of the mined hard negatives to use per step, drawn at random (DevRev-Search, A.4: 8).",
    )
    relative_margin: RelativeMargin = 0.05
    allow_same_document_negatives: AllowSameDocumentNegatives = False
    refresh_steps: int = Field(
        100,
        gt=0,
        description="Mine negatives again after this many steps, with the current encoder (DevRev-Search: 200).",
    )
    max_steps: int | None = Field(None, gt=0, description=MaxStepsDescription)
    batch_size: TrainBatchSize = 64
    learning_rates: LearningRates = ()
    unjudged_budget: int = Field(
        1000,
        ge=0,
        description="Maximum number of unjudged pairs that the build's judge labels before systems are compared: pairs "
        "in the top 10 of any of them for a test query. 0: none.",
    )
    serve_as: Literal["dense", "hybrid"] = Field(
        "dense",
        description="How the encoder will be served, and so what selects the learning rate and must improve for a "
        "release: its own ranking, or its fusion with BM25 (by rank or by score, whichever is better for the base on "
        "validation).",
    )
    report_to: ReportTo = ()

    @property
    def n_steps(self) -> int:
        """Maximum training steps of a trial."""
        return self.max_steps or HEAD_STEPS

    def with_head(self) -> Self:
        """The settings with a method that trains a head, if none was chosen."""
        return self.model_copy(update={"method": "linear"}) if self.method == "auto" else self

    def with_method(self, method: str, n_queries: int) -> Self:
        """The settings with a method and, if none is set, its number of steps for a number of training queries."""
        steps = self.max_steps
        if method not in HEADS and steps is None:
            epochs = ceil(ENCODER_EPOCHS * n_queries / self.batch_size)
            steps = min(max(epochs, MIN_ENCODER_STEPS), MAX_ENCODER_STEPS)
        return self.model_copy(update={"method": method, "max_steps": steps})

    @model_validator(mode="after")
    def _negatives_per_step_are_available(self) -> Self:
        if self.negatives_per_step > self.num_negatives:
            raise ValueError(
                f"negatives_per_step {self.negatives_per_step} must not exceed num_negatives {self.num_negatives}"
            )
        return self
