"""Small files that tell when a byte of them changed."""

import json

import pytest

from darklode.pipeline.base.artifacts.checksummed_json import CHECKSUM_KEY, dump_checksummed, load_checksummed

CONTENT = {"stage": "ünï", "rows": 3, "facts": {"sha256": "", "empty": [], "none": None, "share": 0.1}}


def test_what_was_sealed_is_read_and_is_plain_json() -> None:
    data = dump_checksummed(CONTENT)
    assert load_checksummed(data) == CONTENT
    assert {name: value for name, value in json.loads(data).items() if name != CHECKSUM_KEY} == CONTENT
    assert load_checksummed(dump_checksummed({})) == {}


def test_no_bit_flips_unseen() -> None:
    data = dump_checksummed(CONTENT)
    for place in range(len(data)):
        for bit in range(8):
            flipped = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
            try:
                found = load_checksummed(flipped)
            except ValueError:
                continue
            assert CONTENT.items() < found.items(), "only the checksum's own name may change, and that is one key more"


def test_a_file_of_an_earlier_version_has_no_seal() -> None:
    assert load_checksummed(b'{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"{", b'{"a": 1, "sha256": "x"}', dump_checksummed({"a": 1})[:-1]]
)
def test_what_is_no_sealed_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        load_checksummed(data)
