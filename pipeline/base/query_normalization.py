"""The normal form of a query: two spellings with the same normal form are the same query.

"Reset password?", "reset  password" and "RESET “PASSWORD”" are one query. Logs, splits and test sets identify queries
by their normal form. Only marks that certainly carry no meaning are removed: merging two different queries would give
each the other's documents, while splitting one query in two only loses some evidence.
"""

import pyarrow as pa
import pyarrow.compute as pc

_Rules = tuple[tuple[str, str], ...]

_WORD_CLASS = r"\pL\pM\p{Nd}"
_NORMAL_PATTERN = "^[a-z0-9]+( [a-z0-9]+)*$"

# Before NFKC, which writes 1½ as 11/2, 10² as 102, ™ as letters and an acute accent as a space.
_RULES_BEFORE_NFKC: _Rules = (
    (
        r"[\x{ad}\x{200b}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{fe00}-\x{fe0f}\x{feff}™®©]",
        "",
    ),
    (r"(\p{Nd})([¼½¾⅐-⅞])", r"\1 \2"),
    (r"(\p{Nd})([⁰¹²³⁴-⁹]+)", r"\1^\2"),
    (r"[`´‘’‚‛′ʼ]", "'"),
    (r"[“”„‟″«»]", '"'),
)
_EQUIVALENCE_RULES: _Rules = ((r"[‐-―−]", "-"), ("⁄", "/"), ("ς", "σ"), (r"[\s\pZ\p{Cc}]+", " "))
_WITHIN_WORD_RULES: _Rules = ((rf"([{_WORD_CLASS}])'+(\pL)", r"\1\2"), (r"([\pL\pM])-+(\pL)", r"\1 \2"))
_MARK_RULES: _Rules = (  # for texts with a space before and after
    (r""" "([^"]*)"([^\pL\p{Nd}"])""", r" \1 \2"),
    (r""" '([^']*)'([^\pL\p{Nd}'])""", r" \1 \2"),
    *(_WITHIN_WORD_RULES * 2),  # a-b-c overlaps
    (r"""([^\p{Nd}'"])['"]+""", r"\1 "),
    (r"[?;¿¡。、،؛؟।॥(){}「」『』【】《》〈〉]", " "),
    (r"!+([^!=])", r" \1"),
    (r",+([^\p{Nd},])", r" \1"),
    (r"([^\p{Nd},]),+", r"\1 "),
    (r"[.,]{2,}", " "),
    (rf"\.([^{_WORD_CLASS}])", r" \1"),
    (r":+ | :+", " "),
    (r"( +-+)+ +", " "),
    (r" +", " "),
)


def normal_form(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The normal form of each text, never empty for a text that is not; null for null.

    Unicode NFKC, lower case, single spaces. Sentence marks, brackets except [], quotes, dashes between words and
    apostrophes in words are removed; a hyphen becomes a space between letters. Marks that can carry meaning stay:
    "c++", "c#", ".net", "node.js", "1.2.3", "3,5", "a-1402", "-5", "--force", "at&t", "50%", "5\\"", "a != b",
    "[email]". A text of removable marks only is kept, in lower case. The function is idempotent.

    Args:
        texts: strings; each distinct one is normalized once.
    """
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    coded = column.dictionary_encode()
    return _normalize_texts(coded.dictionary).take(coded.indices)


def _normalize_texts(texts: pa.Array) -> pa.Array:
    odd = pc.invert(pc.match_substring_regex(texts, _NORMAL_PATTERN))
    alike = pc.utf8_normalize(_apply_rules(texts.filter(odd), _RULES_BEFORE_NFKC), "NFKC")
    alike = pc.utf8_trim_whitespace(_apply_rules(pc.utf8_normalize(pc.utf8_lower(alike), "NFKC"), _EQUIVALENCE_RULES))
    bare = _strip_marks(alike)
    return pc.replace_with_mask(texts, odd, pc.if_else(pc.equal(bare, ""), alike, bare))


def _strip_marks(texts: pa.Array) -> pa.Array:
    """Remove marks until nothing changes: removing one can make another removable."""
    marked = pc.binary_join_element_wise(" ", texts, " ", "")
    while not (fewer := _apply_rules(marked, _MARK_RULES)).equals(marked):
        marked = fewer
    return pc.utf8_trim_whitespace(marked)


def _apply_rules(texts: pa.Array, rules: _Rules) -> pa.Array:
    for pattern, replacement in rules:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts
