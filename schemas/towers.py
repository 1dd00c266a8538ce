"""Settings of `train-towers`: both towers from triplets, and distillation of a smaller query tower."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.paths import FolderOrName, PathField
from darklode.schemas.section import Bound, NoRow, Rate, Section
from darklode.schemas.shared import EvalQueries, LearningRates, MaxSteps, PromptName, ReportTo, TrainBatchSize

View = Literal["title", "content", "all"]


class DualSettings(Section):
    """Training of both towers from triplets (`train-towers --stage 1`)."""

    method: Literal["full", "lora"] = Field(
        "full",
        description="Train the whole encoder, or LoRA with adapt.lora_rank, lora_alpha and target_modules. The two "
        "projections are always trained.",
    )
    query_tower_layers: int | None = Field(
        None,
        gt=0,
        description="Number of evenly spaced encoder layers that the query tower keeps; a small number gives a fast "
        "query tower beside a large document tower (ScalingNote's ScalingDoc). null: all.",
    )
    views: tuple[View, ...] = Field(
        ("title", "content", "all"),
        min_length=1,
        description="Document views, each with its own loss. `all` is the one that is indexed, and required.",
    )
    prompt: FolderOrName[str] = Field(
        "default",
        min_length=1,
        description=PromptName,
    )
    matryoshka_dims: tuple[int, ...] = Field(
        (16, 32, 64, 128),
        min_length=1,
        description="Vector lengths of Matryoshka representation learning, ascending; the last one is the full length "
        "(ScalingNote: 16, 32, 64, 128).",
    )
    temperatures: Bound[tuple[Rate, ...]] = Field(
        (0.05,),
        min_length=1,
        description="Softmax temperatures τ to try; the best on held-out queries is kept (ScalingNote names none).",
    )
    triplet_margin: float = Field(
        0.2, ge=0, description="Margin of the margin loss between a positive and its hard negative."
    )
    margin_loss_weight: float = Field(0.5, ge=0, description="Weight α of the margin loss in the total loss.")
    max_steps: MaxSteps = 2000
    batch_size: TrainBatchSize = 32
    learning_rates: LearningRates = Field((2e-5,), min_length=1)
    eval_queries: EvalQueries = 200
    gradient_checkpointing: NoRow[bool] = Field(
        False, description="Gradient checkpointing: less memory, more time, the same gradients."
    )
    report_to: ReportTo = ()

    @model_validator(mode="after")
    def _dims_and_views_are_valid(self) -> Self:
        if list(self.matryoshka_dims) != sorted(set(self.matryoshka_dims)) or self.matryoshka_dims[0] < 1:
            raise ValueError(f"matryoshka_dims {self.matryoshka_dims} must be ascending and at least 1")
        if "all" not in self.views or len(set(self.views)) < len(self.views):
            raise ValueError("views must contain `all`, the view that is indexed, and no view twice")
        return self


class DistillSettings(Section):
    """Distillation of a smaller query tower from queries alone (`train-towers --stage 2`); documents stay unchanged."""

    student_layers: int = Field(
        3,
        gt=0,
        description="Number of the teacher's layers that the student starts from: the first and the last ones; 1: the "
        "last one, over a table of hidden states.",
    )
    student_model: Annotated[str | None, PathField(or_name=True, names=("static",))] = Field(
        None,
        min_length=1,
        description="A sentence-transformers model to use as the student instead of the teacher's layers, with its "
        "own tokenizer and a projection to the index's dimension: hub name, local folder or package:NAME. `static`: "
        "a table of vectors of the teacher's tokens, whose mean encodes a query.",
    )
    max_steps: MaxSteps = 3000
    batch_size: TrainBatchSize = 128
    learning_rates: LearningRates = Field((3e-4,), min_length=1)
    eval_queries: EvalQueries = 1000
    report_to: ReportTo = ()
