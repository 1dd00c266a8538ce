"""The values of a log's columns, from the texts that stand for them."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.ingest.block import Mask, emptied, mask
from pipeline.personal_data import mask as masked

TRUE, FALSE = pa.array(["true", "t", "yes", "y"]), pa.array(["false", "f", "no", "n"])
COUNT = r"^\+?[0-9]+(\.0*)?$"
WHOLE = r"^[+-]?[0-9]{1,9}(\.0*)?$"
DECIMAL = r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?$"


def spaced(texts: pa.Array) -> pa.Array:
    """Texts with single spaces between their words, and none around them."""
    return pc.binary_join(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts)), " ")


def without_personal_data(texts: pa.Array) -> pa.Array:
    """Texts with single spaces, since numbers may hold odd ones, and with personal data masked."""
    return masked(spaced(pc.utf8_normalize(texts, "NFC")))


def normalised(queries: pa.Array, *, masking: bool) -> pa.Array:
    """Queries in NFC, lower case and with single spaces; personal data is masked before, since masks look at case."""
    coded = queries.dictionary_encode()
    distinct = pc.utf8_normalize(coded.dictionary, "NFC")
    sound = without_personal_data(distinct) if masking else spaced(distinct)
    return pc.utf8_lower(sound).take(coded.indices)


def read_positions(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Whole numbers below a billion as int32, null where there is none; and where a text is no such number."""
    return _by_distinct(texts, _positions)


def read_clicks(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Whether it was clicked, from a truth value or a count, false where there is none; and where it is neither."""
    clicks, bad = _by_distinct(texts, _clicks)
    return pc.fill_null(clicks, False), bad


def read_seconds(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Seconds as float32, null where there are none; and where a text is no number from 0."""
    return _by_distinct(texts, _seconds)


def _by_distinct(texts: pa.Array, read: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, Mask]:
    """The values that `read` gives for the distinct texts, and where it gives none for a text that has one."""
    coded = texts.dictionary_encode()
    given = emptied(coded.dictionary)
    known = pc.if_else(pc.equal(pc.utf8_lower(given), "nan"), None, given)
    values = read(known)
    lost = pc.and_(values.is_null(), known.is_valid())
    return values.take(coded.indices), mask(lost.take(coded.indices))


def _positions(given: pa.Array) -> pa.Array:
    digits = pc.replace_substring_regex(pc.utf8_ltrim(given, "+"), r"\..*$", "")
    return pc.if_else(pc.match_substring_regex(given, WHOLE), digits, None).cast(pa.int32())


def _clicks(given: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(given)
    count = pc.if_else(pc.match_substring_regex(lower, COUNT), pc.match_substring_regex(lower, r"^[^.]*[1-9]"), None)
    return pc.coalesce(count, pc.if_else(pc.is_in(lower, TRUE), True, pc.if_else(pc.is_in(lower, FALSE), False, None)))


def _seconds(given: pa.Array) -> pa.Array:
    numbers = pc.if_else(pc.match_substring_regex(given, DECIMAL), given, None).cast(pa.float32())
    return pc.if_else(pc.is_finite(numbers), numbers, None)
