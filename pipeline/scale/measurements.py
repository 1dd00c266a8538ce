"""Unit costs of stages: those that come with Darklode, or a user's own from `python -m benchmarks.scaling`."""

from __future__ import annotations

import json
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.scale.growth import FLAT, LEAST, Growth, fit_growth, local_exponent
from darklode.schemas.section import Section

Unit = Literal["chunks", "raw_queries", "queries", "pairs", "impressions"]
Positive = Annotated[float, Field(gt=0)]


class CostPoint(Section):
    """What a stage took at one size: processor seconds of all threads, megabytes beyond those it began with, bytes.

    Megabytes that were not measured are null.
    """

    size: Positive
    seconds: Positive
    megabytes: Positive | None = None
    bytes: Annotated[float, Field(ge=0)] = 0.0


class StageCosts(Section):
    """A stage at several sizes.

    Attributes:
        job: build, mine or index.
        per: what its size counts.
        times: what its seconds are paid for each of; null: once.
    """

    model_config = ConfigDict(ignored_types=(cached_property,))

    job: Literal["build", "mine", "index"]
    name: str
    per: Unit
    times: Unit | None = None
    points: Annotated[tuple[CostPoint, ...], Field(min_length=LEAST)]

    @model_validator(mode="after")
    def _memory_is_known(self) -> Self:
        if len(self._memory_points) < 2:
            raise ValueError("megabytes of at least two sizes are needed")
        return self

    @cached_property
    def growth(self) -> Growth:
        """Of its processor seconds."""
        return fit_growth([point.size for point in self.points], [point.seconds for point in self.points])

    @cached_property
    def memory_exponent(self) -> float:
        """Between the two largest sizes."""
        return local_exponent(*zip(*self._memory_points, strict=True))

    @property
    def _memory_points(self) -> list[tuple[float, float]]:
        """Sizes and their megabytes."""
        return [(point.size, point.megabytes) for point in self.points if point.megabytes is not None]

    @property
    def flat(self) -> bool:
        """Whether memory has stopped to grow at the largest size."""
        return self.memory_exponent <= FLAT

    def megabytes(self, size: float, row_ratio: float = 1.0) -> float:
        """Memory at a size: as much as was measured, and where it was still growing, by the power of its last step.

        Args:
            size: of one tenant.
            row_ratio: size of a row against the measured one; it multiplies what is above the smallest measurement.
        """
        (_, least), (largest, largest_megabytes) = self._memory_points[0], self._memory_points[-1]
        estimate = largest_megabytes * (1.0 if self.flat else max(size / largest, 1.0) ** self.memory_exponent)
        return min(least, estimate) + max(estimate - least, 0.0) * row_ratio

    def bytes(self, size: float) -> float:
        """What it writes at a size, by the largest that was measured."""
        return self.points[-1].bytes / self.points[-1].size * size


class Shares(Section):
    """What a row of one kind makes of the next.

    Attributes:
        kept: queries that cleaning keeps of each.
        candidates: pairs to judge for each kept query.
        prompt_tokens: of a judged pair.
        completion_tokens: of its answer.
    """

    kept: Annotated[float, Field(gt=0, le=1)]
    candidates: Positive
    prompt_tokens: Positive
    completion_tokens: Positive


class MeasuredVectors(Section):
    """Vectors that the stages of encoders and indexes were measured with.

    Attributes:
        dimensions: numbers of a vector.
        bytes_per_number: in the embedding cache.
    """

    dimensions: Annotated[int, Field(gt=0)]
    bytes_per_number: Annotated[int, Field(gt=0)]


class Measured(Section):
    """All of them, and where, when and with which vectors they were measured."""

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
        InputError: it cannot be read, or holds something else.
    """
    own = files("darklode.pipeline.scale").joinpath("measured.json")
    try:
        text = Path(path).read_text(encoding="utf-8") if path else own.read_text(encoding="utf-8")
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
