"""The id of an embeddings endpoint names what can change a vector, and nothing else."""

import pytest

from darklode.pipeline.retrieve.encoders.embeddings_endpoint import EmbeddingsEndpoint


@pytest.mark.parametrize(
    ("change", "same"), [({"query_prompt": "q: "}, False), ({"dimensions": 8}, False), ({"timeout": 5.0}, True)]
)
def test_only_what_changes_a_vector_changes_the_id(change: dict[str, object], same: bool) -> None:
    endpoint = EmbeddingsEndpoint(model="m")
    assert (endpoint.model_copy(update=change).encoder_id() == endpoint.encoder_id()) is same
