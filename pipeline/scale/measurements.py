"""Unit costs of stages: those that come with Darklode, or a user's own from `python -m benchmarks.scaling`."""

from __future__ import annotations

import json
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.scale.growth import (
    MAX_CONSTANT_EXPONENT,
    MIN_SIZES,
    Growth,
    fit_growth,
    local_exponent,
)
from darklode.schemas.section import Section

Unit = Literal["chunks", "raw_queries", "queries", "pairs", "impressions"]
Positive = Annotated[float, Field(gt=0)]


class CostPoint(Section):
    """Cost of a stage at one size: CPU seconds of all threads, additional megabytes of memory, bytes written.

    `megabytes` is null if it was not measured.
    """

    size: Positive
    seconds: Positive
    megabytes: Positive | None = None
    bytes: Annotated[float, Field(ge=0)] = 0.0


class StageCosts(Section):
    """Costs of a stage at several sizes.

    Attributes:
        job: build, mine or index.
        per: unit of the size.
        times: unit by whose count the seconds are multiplied; null: once.
    """

    model_config = ConfigDict(ignored_types=(cached_property,))

    job: Literal["build", "mine", "index"]
    name: str
    per: Unit
    times: Unit | None = None
    points: Annotated[tuple[CostPoint, ...], Field(min_length=MIN_SIZES)]

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        if len(self._memory_points) < 2:
            raise ValueError("megabytes are required for at least two sizes")
        return self

    @cached_property
    def growth(self) -> Growth:
        """Fitted growth of the CPU seconds."""
        return fit_growth([point.size for point in self.points], [point.seconds for point in self.points])

    @cached_property
    def memory_exponent(self) -> float:
        """Exponent of the memory between the two largest sizes."""
        return local_exponent(*zip(*self._memory_points, strict=True))

    @property
    def _memory_points(self) -> list[tuple[float, float]]:
        """Sizes and megabytes where memory was measured."""
        return [(point.size, point.megabytes) for point in self.points if point.megabytes is not None]

    @property
    def has_constant_memory(self) -> bool:
        """Whether memory no longer grows at the largest measured size."""
        return self.memory_exponent <= MAX_CONSTANT_EXPONENT

    def megabytes(self, size: float, row_ratio: float = 1.0) -> float:
        """Memory at a size: the largest measurement, extrapolated by `memory_exponent` if it still grows.

        Args:
            size: size of one tenant.
            row_ratio: row size relative to the measured one; scales the memory above the smallest measurement.
        """
        (_, smallest), (largest, largest_megabytes) = self._memory_points[0], self._memory_points[-1]
        growth = 1.0 if self.has_constant_memory else max(size / largest, 1.0) ** self.memory_exponent
        estimate = largest_megabytes * growth
        return min(smallest, estimate) + max(estimate - smallest, 0.0) * row_ratio

    def bytes(self, size: float) -> float:
        """Bytes written at a size, proportional to the largest measurement."""
        return self.points[-1].bytes / self.points[-1].size * size


class Shares(Section):
    """Ratios between row counts.

    Attributes:
        kept: share of queries that pass cleaning.
        candidates: pairs to judge per kept query.
        prompt_tokens: prompt tokens per judged pair.
        completion_tokens: completion tokens per judged pair.
    """

    kept: Annotated[float, Field(gt=0, le=1)]
    candidates: Positive
    prompt_tokens: Positive
    completion_tokens: Positive


class MeasuredVectors(Section):
    """Vectors used when encoder and index stages were measured.

    Attributes:
        bytes_per_number: bytes per dimension in the embedding cache.
    """

    dimensions: Annotated[int, Field(gt=0)]
    bytes_per_number: Annotated[int, Field(gt=0)]


class Measured(Section):
    """All stage costs, with the day, machine and vectors of the measurement."""

    day: str
    machine: str
    vectors: MeasuredVectors
    shares: Shares
    stages: tuple[StageCosts, ...]


def load_measured(path: str | None = None) -> Measured:
    """Read unit costs.

    Args:
        path: file written by `python -m benchmarks.scaling`; None: the unit costs that come with Darklode.

    Raises:
        InputError: the file is unreadable or invalid.
    """
    bundled = files("darklode.pipeline.scale").joinpath("measured.json")
    try:
        text = Path(path).read_text(encoding="utf-8") if path else bundled.read_text(encoding="utf-8")
        costs = Measured.model_validate(json.loads(text))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path}: {location}: {first['msg']}; write the file with `python -m benchmarks.scaling`"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON; write the file with `python -m benchmarks.scaling`") from error
    return costs
