"""The README.md from whose front matter `datasets.load_dataset` learns a folder's configs and files."""

from collections.abc import Mapping
from pathlib import Path

import duckdb
import yaml

Files = dict[str, dict[str, str]]
"""For each config, the file of each split, relative to the folder."""


def write_card(folder: Path, configs: Files, text: str, front: Mapping[str, object] | None = None) -> None:
    """Write the README.md of a folder's Parquet files; files that do not exist are not listed, nor empty configs.

    Args:
        folder: where the files are.
        configs: the files by config and split.
        text: what follows the front matter.
        front: further keys of the front matter.
    """
    listed = [
        {"config_name": config, "data_files": files}
        for config, splits in configs.items()
        if (files := [{"split": s, "path": path} for s, path in splits.items() if (folder / path).exists()])
    ]
    matter = yaml.safe_dump({**(front or {}), "configs": listed}, sort_keys=False)
    (folder / "README.md").write_text(f"---\n{matter}---\n{text}", encoding="utf-8")


def whose_labels(connection: duckdb.DuckDBPyConnection) -> str:
    """A paragraph on the labels that people gave, for connections that hold `qrels`; empty where there is none."""
    counts = "SELECT count(*) FILTER (source = 'human'), count(*) FROM qrels"
    human, labels = connection.execute(counts).fetchall()[0]
    return f"\n{human:,} of {labels:,} labels are people's, in the place of the judge's.\n" if human else ""
