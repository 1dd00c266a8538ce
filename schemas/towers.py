"""The settings of `train-towers`: what a smaller query tower is made of, and how long it learns from its teacher."""

from pydantic import Field

from darklode.schemas.places import FolderOrName
from darklode.schemas.section import Bound, NoRow, Rate, Section


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
