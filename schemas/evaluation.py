"""The settings of what measures systems: the audit of a build, and `evaluate-systems`."""

from pydantic import Field

from darklode.schemas.paths import FilePath
from darklode.schemas.section import Section


class AuditSettings(Section):
    """How the retrievers are measured."""

    bootstrap: int = Field(1000, gt=0, description="resamples of the queries for each interval")


class EvaluateSettings(Section):
    """Which systems are measured on a run's test queries, by what, and against which labels of people."""

    systems: tuple[str, ...] = Field(
        (), description="retrievers and encoders of the settings; empty: pool.retrievers, mined: relevance.retrievers"
    )
    run_files: FilePath[tuple[str, ...]] = Field(
        (), description="files of TREC runs by other systems; the file's name is theirs"
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
        description="names of ir_measures with a depth; the first is the one that is shown with differences",
    )
    labels: FilePath[str | None] = Field(
        None,
        min_length=1,
        description="people's labels of pairs, for AUC: CSV, JSONL or Parquet with query, document, satisfaction, "
        "relevance",
    )
    bootstrap: int = Field(1000, gt=0, description="resamples of the queries, or of the sessions, for each interval")
    flips: int = Field(
        10_000,
        gt=0,
        description="random signs of each test of two systems; 200 for each p that is corrected, where that is more",
    )
    judged_searches: int | None = Field(
        None,
        ge=0,
        description="searches of each tenant and arm of a log whose first 20 documents the judge looks at, 16 chunks "
        "of each at most; null: 50, by any judge but the embedded one; 0: none",
    )
