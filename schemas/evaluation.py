"""Settings of the evaluation of systems: the audit of a build, and `evaluate-systems`."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from darklode.schemas.paths import FilePath, PathField
from darklode.schemas.section import NoRow, Section

JSON_PREFIX = "json:"
"""What a file in `evaluate.report_to` begins with."""

ReportTarget = Annotated[str, Field(pattern=f"^({JSON_PREFIX}.+|mlflow|wandb)$")]

ReportTargets = Annotated[
    tuple[ReportTarget, ...],
    PathField(prefix=JSON_PREFIX),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]


class EvaluateSettings(Section):
    """Systems to evaluate, measures, statistical tests and human labels."""

    systems: tuple[str, ...] = Field(
        (),
        description="Retrievers and encoders of the settings to evaluate. Empty: those of pool.retrievers, or of "
        "relevance.retrievers for a mined run.",
    )
    run_files: FilePath[tuple[str, ...]] = Field(
        (), description="TREC run files of other systems. The file name is the system's name."
    )
    measures: tuple[str, ...] = Field(
        (
            "nDCG@10",
            "R@10",
            "R@50",
            "R@100",
            "R@500",
            "R@1000",
            "Success@50",
            "Success@100",
            "Success@500",
            "Success@1000",
            "Judged@10",
        ),
        min_length=1,
        description="Measures of ir_measures with a cutoff. Systems are compared on the first one.",
    )
    human_labels: FilePath[str | None] = Field(
        None,
        min_length=1,
        description="Human labels of query–document pairs, for AUC: CSV, JSONL or Parquet with the columns query, "
        "document, satisfaction, relevance.",
    )
    n_resamples: int = Field(
        1000,
        gt=0,
        description="Bootstrap resamples (of queries, or sessions) for each confidence interval of audit, evaluate "
        "and validate.",
    )
    permutations: int = Field(
        10_000,
        gt=0,
        description="Random sign flips of each paired randomisation test. Raised to 200 per corrected p-value where "
        "that is more.",
    )
    judged_searches: int | None = Field(
        None,
        ge=0,
        description="Searches per tenant and variant of a log whose first 20 documents the judge labels, at most 16 "
        "chunks of each. null: 50, but none with the embedded judge. 0: none.",
    )
    report_to: NoRow[ReportTargets] = Field(
        (),
        description="Also send results to json:FILE (a file of JSON), mlflow or wandb. The trackers read their "
        "own environment variables.",
    )
