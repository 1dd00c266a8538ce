"""The settings of `train-towers`: how both towers learn from triplets, and a smaller query tower from its teacher."""

from typing import Literal, Self

from pydantic import Field, model_validator

from darklode.schemas.paths import FolderOrName
from darklode.schemas.section import Bound, NoRow, Rate, Section

View = Literal["title", "content", "all"]


class DualSettings(Section):
    """How both towers are trained from triplets (`train-towers --stage 1`)."""

    method: Literal["full", "lora"] = Field(
        "full", description="what learns besides the two projections; LoRA is that of adapt.rank, alpha and targets"
    )
    layers: int | None = Field(
        None,
        gt=0,
        description="of the encoder's own layers, evenly chosen, that the query tower keeps (ScalingNote's ScalingDoc: "
        "a small query tower beside the large document tower); null: all",
    )
    views: tuple[View, ...] = Field(
        ("title", "content", "all"),
        min_length=1,
        description="of a document, each with its loss; `all` is what is searched",
    )
    prompt: FolderOrName[str] = Field(
        "default",
        min_length=1,
        description="what a decoder is asked within a document: one of Darklode's (prompts/towers), or a folder with a "
        "prompt.yaml; encoders are asked nothing",
    )
    nested: tuple[int, ...] = Field(
        (16, 32, 64, 128),
        min_length=1,
        description="prefixes of a vector that are vectors themselves, ascending; the last is the whole (ScalingNote: "
        "these)",
    )
    temperatures: Bound[tuple[Rate, ...]] = Field(
        (0.05,), min_length=1, description="τ, tried one after the other (ScalingNote names none)"
    )
    margin: float = Field(0.2, ge=0, description="how much nearer than its hard negative a document is to be")
    margin_weight: float = Field(0.5, ge=0, description="α, of the margin loss")
    steps: int = Field(2000, gt=0, description="most steps; the best look at validation queries is kept")
    batch: int = Field(32, gt=0, description="triplets of a step, over all processes (ScalingNote: 480)")
    learning_rates: Bound[tuple[Rate, ...]] = Field(
        (2e-5,), min_length=1, description="tried one after the other (ScalingNote, Table 7: 3e-6)"
    )
    held_out: int = Field(200, gt=0, description="validation queries that are looked at in training, at most")
    checkpointing: NoRow[bool] = Field(
        False, description="layers are computed again on the way back: less memory, more time, the same gradients"
    )
    report_to: NoRow[tuple[str, ...]] = Field(
        (), description="where the trainer logs to: tensorboard, wandb, mlflow; empty: nowhere"
    )

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if list(self.nested) != sorted(set(self.nested)) or self.nested[0] < 1:
            raise ValueError(f"nested {self.nested} must ascend from 1 or more")
        if "all" not in self.views or len(set(self.views)) < len(self.views):
            raise ValueError("views must hold `all`, which is what is searched, and none twice")
        return self


class TowerSettings(Section):
    """How a query tower is distilled from queries alone; documents and their vectors stay as they are."""

    layers: int = Field(3, gt=0, description="of the teacher's own layers, evenly chosen, that the student keeps")
    student: FolderOrName[str | None] = Field(
        None,
        min_length=1,
        description="a sentence-transformers model in the place of the teacher's layers: its own tokens, and a "
        "projection to the index's numbers; a name on the hub, a local folder, or package:NAME",
    )
    steps: int = Field(3000, gt=0, description="most steps; the best look at queries that are held out is kept")
    batch: int = Field(128, gt=0, description="queries of a step (ScalingNote: 40,000)")
    learning_rates: Bound[tuple[Rate, ...]] = Field(
        (3e-4,), min_length=1, description="tried one after the other, the best one is kept (ScalingNote, Table 7)"
    )
    held_out: int = Field(
        1000,
        gt=0,
        description="queries that are looked at in training, and as many that nothing sees before its end; a tenth of "
        "all at most, each",
    )
    report_to: NoRow[tuple[str, ...]] = Field(
        (), description="where the trainer logs to: tensorboard, wandb, mlflow; empty: nowhere"
    )
