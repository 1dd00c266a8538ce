"""The settings of an index: each kind's own keys, and none of another's."""

import pytest
from pydantic import ValidationError

from darklode.schemas.settings import Settings


def test_a_kind_has_its_own_keys_and_no_others() -> None:
    assert Settings.model_validate({"index": {"kind": "ivfpq", "code_size": 32}}).index.model_dump()["code_size"] == 32
    with pytest.raises(ValidationError, match="code_size"):
        Settings.model_validate({"index": {"kind": "flat", "code_size": 32}})


def test_an_id_needs_two_centres_at_each_level() -> None:
    with pytest.raises(ValidationError, match="codebook_size"):
        Settings.model_validate({"semantic_ids": {"codebook_size": 1}})
