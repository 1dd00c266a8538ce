"""Boundaries of sentences, and of words in scripts without spaces: Chinese, Japanese, Thai, Lao, Khmer and Myanmar.

The boundaries are those of Unicode Standard Annex 29 with ICU's dictionaries.
"""

import re

import pyarrow as pa
import pyarrow.compute as pc

UNSPACED_CLASS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana, Han
    "\U00020000-\U0003134f"
)
"""Characters of these scripts, for a character class of a regular expression."""

MIN_SENTENCE_WORDS = 4
"""Minimum words of a sentence to be drawn as a query; shorter ones ask for too little."""

UNSPACED_RUN = re.compile(f"[{UNSPACED_CLASS}]+")


def insert_spaces(text: str) -> str:
    """Add white space around each word of these scripts; other characters stay unchanged."""
    return UNSPACED_RUN.sub(_words, text)


def spaced_column(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Apply `insert_spaces` to a column without nulls; only texts in such a script are processed one by one."""
    without = pc.match_substring_regex(texts, UNSPACED_RUN.pattern)
    cut = pa.array(map(insert_spaces, texts.filter(without).to_pylist()), pa.string())
    return pa.chunked_array([pc.replace_with_mask(texts.combine_chunks(), without.combine_chunks(), cut)])


def count_words(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Number of words of each text, separated by white space or by the word boundaries of scripts without spaces.

    A word contains a letter or a digit.
    """
    return pc.cast(pc.count_substring_regex(spaced_column(texts), r"\S*[\pL\pN]\S*"), pa.int32())


def sentences(text: str) -> list[str]:
    """The sentences of a text, stripped; none is empty."""
    from icu4py.breakers import SentenceBreaker

    return [sentence for sentence in (part.strip() for part in SentenceBreaker(text, "root")) if sentence]


def draw_long_sentence(text: str, draw: float) -> str:
    """Draw a sentence of at least `MIN_SENTENCE_WORDS` words; the whole text if there is none.

    Args:
        text: any text.
        draw: random number in [0, 1) that selects the sentence.
    """
    all_sentences = sentences(text)
    words = count_words(pa.chunked_array([pa.array(all_sentences, pa.string())])).to_pylist()
    long = [sentence for sentence, count in zip(all_sentences, words, strict=True) if count >= MIN_SENTENCE_WORDS]
    return long[int(draw * len(long))] if long else text.strip()


def _words(run: re.Match[str]) -> str:
    from icu4py.breakers import WordBreaker

    return f" {' '.join(WordBreaker(run.group(), 'root'))} "
