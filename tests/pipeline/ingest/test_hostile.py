"""Hostile files are rejects or errors that say what to do: none ends the process, and none takes long.

`python -m helpers.hostile 0 100000` reads a hundred thousand of them.
"""

import pytest

from helpers.hostile import failures, hostile

ENDLESS = 20.0
"""Processor seconds that no file takes on the slowest machine, unless its reading grows with its square."""


def test_a_file_is_made_from_its_number_alone() -> None:
    files = [hostile(number) for number in range(200)]
    assert files == [hostile(number) for number in range(200)]
    endings = {file.name.partition(".")[2] for file in files}
    assert {"html", "md", "txt", "jsonl", "csv", "tsv", "parquet", "jsonl.gz"} <= endings
    assert {file.log for file in files} == {True, False}


def test_some_hostile_files() -> None:
    assert list(failures(0, 40, ENDLESS)) == []


@pytest.mark.slow
def test_thousands_of_hostile_files() -> None:
    assert list(failures(40, 2040, ENDLESS)) == []
