"""Settings of adaptation that exclude each other."""

import pytest
from pydantic import ValidationError

from darklode.schemas.adaptation import AdaptSettings


def test_a_step_draws_at_most_the_mined_negatives() -> None:
    assert AdaptSettings(num_negatives=4, negatives_per_step=4).negatives_per_step == 4
    with pytest.raises(ValidationError, match="negatives_per_step 5 must not exceed num_negatives 4"):
        AdaptSettings(num_negatives=4, negatives_per_step=5)
