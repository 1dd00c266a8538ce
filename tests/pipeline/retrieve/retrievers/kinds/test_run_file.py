"""The kind `run_file`: it has no default file, and needs a name of its own."""

import pytest

from darklode.flows.factories import retriever
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.retrieve.retrievers.kinds.run_file import KIND
from darklode.schemas.settings import Settings


def test_its_own_name_says_which_setting_it_needs() -> None:
    with pytest.raises(SettingsError, match=r"--set 'retrievers.NAME=\{kind: run_file, path: …\}'"):
        retriever("run_file", "pool.retrievers", Settings())


def test_two_files_are_searched_apart_and_equal_ones_are_equal() -> None:
    first, second = KIND(path="a.run"), KIND(path="a.run", map_documents="all")
    assert first.shares != second.shares
    assert first.identity == KIND(path="b.run").identity  # both are missing
