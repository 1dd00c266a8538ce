"""Names of the compared systems."""

from darklode.pipeline.train.data.system_names import ADAPTED, LABEL_FREE, by_ranks, by_scores
from darklode.pipeline.train.release.evaluation import SYSTEMS


def test_names_are_distinct_and_no_label_free_one_is_adapted() -> None:
    assert len({*SYSTEMS}) == len(SYSTEMS)
    assert not {ADAPTED, by_ranks(ADAPTED), by_scores(ADAPTED)} & {*LABEL_FREE}
