"""`inputs.json`: one typed form per kind of folder."""

from datetime import date

import pytest
from pydantic import ValidationError

from darklode.schemas.run_inputs import BenchmarkInputs, MinedInputs, dump_inputs, parse_inputs


def test_inputs_are_read_back_as_they_were_written() -> None:
    inputs = MinedInputs(logs="/logs", docs="/docs", refit_through=date(2026, 3, 1))
    content = dump_inputs(inputs)
    assert content == {"kind": "mined", "logs": "/logs", "docs": "/docs", "refit_through": "2026-03-01"}
    assert parse_inputs(content) == inputs


@pytest.mark.parametrize(
    "content",
    [
        {"docs": "/docs", "queries": "/queries"},
        {"kind": "unknown"},
        {"kind": "benchmark", "docs": "/docs"},
        {"kind": "benchmark", "docs": "/docs", "queries": "/queries", "logs": "/logs"},
    ],
    ids=["no kind", "unknown kind", "missing key", "key of another kind"],
)
def test_other_content_is_an_error(content: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        parse_inputs(content)


def test_the_kind_is_known_without_an_instance() -> None:
    assert BenchmarkInputs.kind_name() == "benchmark"
