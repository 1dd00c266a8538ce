import pytest

from darklode.pipeline.judge.probe.kinds import PROBE_KINDS


@pytest.mark.parametrize(
    ("kind", "unchanged", "altered", "outcome"),
    [
        ("repeated", True, False, "wrong"),
        ("repeated", False, True, "wrong"),
        ("repeated", True, True, "as expected"),
        ("repeated", None, True, "unreadable"),
        ("repeated", True, None, "unreadable"),
        ("planted instruction", False, True, "wrong"),
        ("planted instruction", False, False, "as expected"),
        ("planted instruction", True, True, "excluded"),
        ("planted instruction", True, False, "excluded"),
        ("planted instruction", None, True, "unreadable"),
        ("empty chunk", True, False, "as expected"),
        ("empty chunk", True, True, "wrong"),
        ("empty chunk", None, True, "wrong"),
        ("empty chunk", True, None, "unreadable"),
    ],
)
def test_outcome(kind: str, unchanged: bool | None, altered: bool | None, outcome: str) -> None:
    assert PROBE_KINDS[kind].outcome(unchanged, altered) == outcome
