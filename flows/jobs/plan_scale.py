"""plan-scale: time and cost of a job by its size and machines, from measured unit costs."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from darklode.flows.jobs.job import Job
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.types import Row
from darklode.pipeline.scale.measurements import Measured, load_measured
from darklode.pipeline.scale.plan import PlannedStage, plan_stages, totals
from darklode.schemas.scale import Hardware


def plan_scale(
    documents: float, queries: float, hardware: Path, unit_costs: str | None
) -> tuple[list[PlannedStage], Row, Measured]:
    """Plan a job, stage by stage.

    Args:
        documents: number of documents.
        queries: number of queries.
        hardware: YAML file with the fields of `Hardware`.
        unit_costs: file written by `python -m benchmarks.scaling`; None: the costs that Darklode ships.

    Returns:
        The stages, their totals, and the unit costs.

    Raises:
        SettingsError: the hardware file is invalid.
        InputError: the unit costs cannot be read.
    """
    hardware_settings, costs = read_hardware(hardware), load_measured(unit_costs)
    rows = plan_stages(costs, hardware_settings, documents, queries)
    return rows, totals(rows, hardware_settings), costs


def read_hardware(path: Path) -> Hardware:
    """Read a file of machines and prices.

    Raises:
        SettingsError: it cannot be read, is not YAML, or keys are unknown, missing or out of bounds; all are named.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not YAML ({' '.join(str(error).split())})") from error
    try:
        return Hardware.model_validate(content)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        messages = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}" for problem in errors
        )
        raise SettingsError(f"{path}: {messages}; docs/guides/plan-scale.md has an example") from error


JOB = Job("plan-scale", plan_scale)
