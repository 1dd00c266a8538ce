import pytest
from pydantic import ValidationError

from darklode.schemas.run_inputs import BenchmarkInputs, MinedInputs, dump_inputs, parse_inputs


def test_the_kind_selects_the_model() -> None:
    content = {"kind": "benchmark", "docs": "d", "queries": "q"}
    assert parse_inputs(content) == BenchmarkInputs(docs="d", queries="q")
    assert dump_inputs(parse_inputs(content)) == content
    assert MinedInputs.kind_name() == "mined"
    with pytest.raises(ValidationError):
        parse_inputs(content | {"kind": "mined"})
