"""The id of a local model names what can change a vector, and nothing else."""

import pytest

from darklode.pipeline.retrieve.encoders.prompted_model import PromptedModel


@pytest.mark.parametrize(
    ("change", "same"), [({"document_prompt": "d: "}, False), ({"dtype": "bfloat16"}, False), ({"batch_size": 1}, True)]
)
def test_only_what_changes_a_vector_changes_the_id(change: dict[str, object], same: bool) -> None:
    model = PromptedModel(model="m", revision="0" * 40)
    assert (model.model_copy(update=change).encoder_id() == model.encoder_id()) is same
