"""What a folder was made from: the content of its `inputs.json`, one model per kind of folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class FolderInputs(BaseModel):
    """Base of all kinds.

    Attributes:
        description: what such a folder holds, for messages.
        command: command that makes it.
        state: fields that later commands set; writing the inputs again keeps them.
        paths: fields with a path, which is recorded as an absolute path.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: ClassVar[str]
    command: ClassVar[str]
    state: ClassVar[tuple[str, ...]] = ()
    paths: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def kind_name(cls) -> str:
        """The value of `kind` in `inputs.json`."""
        return str(cls.model_fields["kind"].default)


class BenchmarkInputs(FolderInputs):
    """A judged benchmark.

    Attributes:
        docs: documents.
        queries: query log.
        qrels: relevance judgments, if any were given.
        pages: fingerprint of what the card and the report were made from.
    """

    description = "a benchmark"
    command = "darklode build"
    state = ("pages",)
    paths = ("docs", "queries", "qrels")

    kind: Literal["benchmark"] = "benchmark"
    docs: str
    queries: str
    qrels: str | None = None
    pages: str | None = None


class MinedInputs(FolderInputs):
    """Triplets mined from a search log.

    Attributes:
        logs: search log.
        docs: documents.
        pages: fingerprint of what the card and the report were made from.
        refit_through: last day that term weights and click model are fitted on, set by `--refresh`.
        notified_on: last day (UTC) on which the webhook reported days held back.
    """

    description = "mined triplets"
    command = "darklode mine"
    state = ("pages", "refit_through", "notified_on")
    paths = ("docs", "logs")

    kind: Literal["mined"] = "mined"
    logs: str
    docs: str
    pages: str | None = None
    refit_through: date | None = None
    notified_on: date | None = None


class TrainedInputs(FolderInputs):
    """Base of everything trained on runs.

    Attributes:
        runs: folders of builds, mined runs and generated queries.
        encoder: name in the settings, or a sentence-transformers model.
    """

    runs: list[str]
    encoder: str


class AdapterInputs(TrainedInputs):
    """An adapted query encoder.

    Attributes:
        warm_start: folder of the adapter that training started from, if any.
        qrels: judgments that were brought for the run, if any.
    """

    description = "an adapted encoder"
    command = "darklode adapt"
    paths = ("qrels",)

    kind: Literal["adapter"] = "adapter"
    warm_start: str = ""
    qrels: str | None = None


class ModelSwapInputs(TrainedInputs):
    """A new encoder's queries, mapped onto the index of `encoder`.

    Attributes:
        new_encoder: name in the settings, or a sentence-transformers model.
        queries: files of further queries.
    """

    description = "a model swap"
    command = "darklode adapt model-swap"

    kind: Literal["model-swap"] = "model-swap"
    new_encoder: str
    queries: list[str] = []


class TenantAdaptersInputs(TrainedInputs):
    """A head for each tenant, below `tenants/`.

    Attributes:
        pooled: True if a head was also trained on the rows of all tenants.
    """

    description = "adapted encoders of tenants"
    command = "darklode adapt --tenants"

    kind: Literal["tenant-adapters"] = "tenant-adapters"
    pooled: Literal[True] | None = None


class ComparisonInputs(TrainedInputs):
    """A comparison of adaptation methods."""

    description = "a comparison of adapters"
    command = "darklode adapt compare"

    kind: Literal["comparison"] = "comparison"


class TowersInputs(TrainedInputs):
    """Both towers (stage 1), or a distilled query tower (stage 2).

    Attributes:
        stage: training stage of ScalingNote.
        teacher: folder of the adapter that the student was distilled from; None: the encoder itself.
        queries: files of further queries.
        hold_out: source of queries that is only measured on; None: chosen by size.
    """

    description = "trained towers"
    command = "darklode train-towers"

    kind: Literal["towers"] = "towers"
    stage: Literal[1, 2] = 2
    teacher: str | None = None
    queries: list[str] = []
    hold_out: str | None = None


class RerankerInputs(FolderInputs):
    """A reranker.

    Attributes:
        runs: folders of builds, mined runs and generated queries.
        base: the initial model.
        encoder: encoder that finds its candidates beside BM25.
        candidates: texts per query that it orders.
        control: whether a control with shuffled labels was trained, too.
    """

    description = "a reranker"
    command = "darklode train-reranker"

    kind: Literal["reranker"] = "reranker"
    runs: list[str]
    base: str
    encoder: str
    candidates: int
    control: bool = False


class DistilledJudgeInputs(FolderInputs):
    """A distilled judge.

    Attributes:
        run: the judged run.
        base: the initial model.
        min_agreement: minimum kappa with the teacher.
    """

    description = "a distilled judge"
    command = "darklode judge distil"

    kind: Literal["distilled-judge"] = "distilled-judge"
    run: str
    base: str
    min_agreement: float | None = None


class IndexInputs(FolderInputs):
    """An index; `source` is a run or a file of vectors, `tenants` names several, separated by commas, or is `all`."""

    description = "an index"
    command = "darklode index"

    kind: Literal["index"] = "index"
    source: str
    encoder: str
    tenant: str | None = None
    tenants: str | None = None
    adapter: str | None = None


class GeneratedInputs(FolderInputs):
    """Generated queries; `source` is the run whose texts they were written for."""

    description = "generated queries"
    command = "darklode generate"

    kind: Literal["generated"] = "generated"
    source: str


class LawsInputs(FolderInputs):
    """Points and scaling laws.

    Attributes:
        runs: folders of the runs that the points were trained on; empty if they were read from a file.
        encoders: encoders of the points.
        points: file that the points were read from.
    """

    description = "scaling laws"
    command = "darklode laws"

    kind: Literal["laws"] = "laws"
    runs: list[str] = []
    encoders: list[str] = []
    points: str | None = None


Inputs: TypeAlias = (
    BenchmarkInputs
    | MinedInputs
    | AdapterInputs
    | ModelSwapInputs
    | TenantAdaptersInputs
    | ComparisonInputs
    | TowersInputs
    | RerankerInputs
    | DistilledJudgeInputs
    | IndexInputs
    | GeneratedInputs
    | LawsInputs
)

_ADAPTER: TypeAdapter[Inputs] = TypeAdapter(Annotated[Inputs, Field(discriminator="kind")])


def parse_inputs(content: Mapping[str, Any]) -> Inputs:
    """Validate the content of `inputs.json`.

    Raises:
        ValidationError: an unknown kind, or keys that the kind does not have.
    """
    return _ADAPTER.validate_python(content, strict=False)


def dump_inputs(inputs: Inputs) -> dict[str, Any]:
    """Plain values for `inputs.json`; nulls are left out."""
    return inputs.model_dump(mode="json", exclude_none=True)
