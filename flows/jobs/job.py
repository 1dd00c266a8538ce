"""A job: one object per command with its flow function, inputs, steps, report sections and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from darklode.pipeline.report.funnel import FUNNEL_STAGE

if TYPE_CHECKING:
    from darklode.pipeline.base.artifacts import Run, Step
    from darklode.pipeline.base.errors import DarklodeError
    from darklode.schemas.run_inputs import FolderInputs
    from darklode.schemas.settings import Settings

RUN_SECTIONS = (
    "overview",
    "queries",
    "pool",
    "judging",
    "positives",
    "people",
    "validation",
    "audit",
    "evaluation",
    "mining",
    "triplets",
    "cost",
)
"""Report sections of benchmarks and mined runs; a section without data is left out."""


@dataclass(frozen=True)
class Job:
    """What a command does.

    Attributes:
        name: name of the job, and of its Prefect flow and deployments if it has any.
        function: function that the command and the flow call; a flow returns a sentence that summarizes the result, or
            None.
        inputs: model of `inputs.json` in the folder that the job makes; None: the job adds to an existing folder.
        steps: returns the steps of a folder in data order, from its inputs and settings. Models and source runs are
            not opened, so unless `can_plan` the steps only give names and order.
        can_plan: whether those steps can be compared with what the folder holds.
        sections: keys of the report's sections; empty: the folder has no report.
        refusals: errors that report a finished job with a negative result, each with an exit code of its own.
    """

    name: str
    function: Callable[..., Any]
    inputs: type[FolderInputs] | None = None
    steps: Callable[[Run, Any, Settings], list[Step]] | None = None
    can_plan: bool = False
    sections: tuple[str, ...] = ()
    refusals: tuple[type[DarklodeError], ...] = ()

    @property
    def exit_codes(self) -> dict[int, str]:
        """Exit codes of the command and their meaning."""
        codes = {0: "complete", 1: "failed", 2: "wrong settings or options", 130: "interrupted"}
        for code in sorted({error.code for error in self.refusals}):
            codes[code] = " or ".join(error.__name__ for error in self.refusals if error.code == code)
        return codes

    def stages(self, run: Run, inputs: FolderInputs, settings: Settings) -> dict[str, bool]:
        """Stage names in data order, and whether the settings enable each."""
        steps = self.steps(run, inputs, settings) if self.steps else []
        return stages(steps, with_funnel=self.can_plan)


def stages(steps: list[Step], *, with_funnel: bool = True) -> dict[str, bool]:
    """Stage names in data order, and whether the settings enable each; the funnel of a run comes last."""
    enabled = {step.stage.name: step.enabled for step in steps}
    return enabled | {FUNNEL_STAGE.name: True} if with_funnel else enabled
