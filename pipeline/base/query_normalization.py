"""What the spellings of one query have in common: its normal form, by which two queries are one.

A query is typed in many ways: "Reset password?", "reset  password" and "RESET “PASSWORD”" are one query. Wherever
queries are counted, compared or divided (a log, splits, test sets), the normal form says which are the same. Only marks
that surely carry nothing go, the others stay: two queries taken for one lend each other wrong documents, one taken for
two only loses some.
"""

import pyarrow as pa
import pyarrow.compute as pc

_Rules = tuple[tuple[str, str], ...]

_WORD = r"\pL\pM\p{Nd}"
_PLAIN = "^[a-z0-9]+( [a-z0-9]+)*$"

# Before NFKC, which writes 1½ as 11/2, 10² as 102, ™ as letters and an acute accent as a space.
_BEFORE: _Rules = (
    (
        r"[\x{ad}\x{200b}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{fe00}-\x{fe0f}\x{feff}™®©]",
        "",
    ),
    (r"(\p{Nd})([¼½¾⅐-⅞])", r"\1 \2"),
    (r"(\p{Nd})([⁰¹²³⁴-⁹]+)", r"\1^\2"),
    (r"[`´‘’‚‛′ʼ]", "'"),
    (r"[“”„‟″«»]", '"'),
)
_ALIKE: _Rules = ((r"[‐-―−]", "-"), ("⁄", "/"), ("ς", "σ"), (r"[\s\pZ\p{Cc}]+", " "))
_JOINED: _Rules = ((rf"([{_WORD}])'+(\pL)", r"\1\2"), (r"([\pL\pM])-+(\pL)", r"\1 \2"))
_MARKS: _Rules = (  # for texts with a space before and after
    (r""" "([^"]*)"([^\pL\p{Nd}"])""", r" \1 \2"),
    (r""" '([^']*)'([^\pL\p{Nd}'])""", r" \1 \2"),
    *(_JOINED * 2),  # a-b-c overlaps
    (r"""([^\p{Nd}'"])['"]+""", r"\1 "),
    (r"[?;¿¡。、،؛؟।॥(){}「」『』【】《》〈〉]", " "),
    (r"!+([^!=])", r" \1"),
    (r",+([^\p{Nd},])", r" \1"),
    (r"([^\p{Nd},]),+", r"\1 "),
    (r"[.,]{2,}", " "),
    (rf"\.([^{_WORD}])", r" \1"),
    (r":+ | :+", " "),
    (r"( +-+)+ +", " "),
    (r" +", " "),
)


def normal_form(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The normal form of each text, never empty for a text that is not; null for null.

    Unicode NFKC, lower case, single spaces. Sentence marks, brackets but [], quotes and dashes between words go, as do
    apostrophes in words; a hyphen between letters is a space. What can carry meaning stays: "c++", "c#", ".net",
    "node.js", "1.2.3", "3,5", "a-1402", "-5", "--force", "at&t", "50%", "5\\"", "a != b", "[email]". A text of such
    marks only is kept as it is, in lower case. The form of a form is the form itself.

    Args:
        texts: strings; each distinct one is looked at once.
    """
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    coded = column.dictionary_encode()
    return _normalize_texts(coded.dictionary).take(coded.indices)


def _normalize_texts(texts: pa.Array) -> pa.Array:
    odd = pc.invert(pc.match_substring_regex(texts, _PLAIN))
    alike = pc.utf8_normalize(_apply_rules(texts.filter(odd), _BEFORE), "NFKC")
    alike = pc.utf8_trim_whitespace(_apply_rules(pc.utf8_normalize(pc.utf8_lower(alike), "NFKC"), _ALIKE))
    bare = _strip_marks(alike)
    return pc.replace_with_mask(texts, odd, pc.if_else(pc.equal(bare, ""), alike, bare))


def _strip_marks(texts: pa.Array) -> pa.Array:
    """Texts without marks, again and again until nothing changes: what went may have kept another apart."""
    marked = pc.binary_join_element_wise(" ", texts, " ", "")
    while not (fewer := _apply_rules(marked, _MARKS)).equals(marked):
        marked = fewer
    return pc.utf8_trim_whitespace(marked)


def _apply_rules(texts: pa.Array, rules: _Rules) -> pa.Array:
    for pattern, replacement in rules:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts
