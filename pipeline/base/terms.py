"""Words of a corpus: the analyzer and the term counts that every embedded retriever is fitted on."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import Stemmer
from numpy.typing import NDArray

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.segmentation import RUN, WITHOUT_SPACES, insert_spaces

if TYPE_CHECKING:
    from scipy import sparse

_MAX_FREQUENT = 30_000  # what vectors are fitted on: rarer terms have too little company to learn from
_SAMPLE_SEED = 20170401
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff"  # `\w` alone cuts words at vowel signs
_WORD = re.compile(rf"[\w{_MARKS}{WITHOUT_SPACES}]+")
_SPAN = re.compile(rf"{RUN.pattern}|(?:(?![_{WITHOUT_SPACES}])[\w{_MARKS}])+")


def _bigrams(run: re.Match[str]) -> str:
    text = run.group()
    pairs = [text[i : i + 2] for i in range(len(text) - 1)] or [text]
    return f" {' '.join(pairs)} "


def words(text: str, *, segmented: bool = False) -> list[str]:
    """Lower-case words of `text` (NFKC), in order, stop words included.

    A word is a run of Unicode letters, digits and vowel signs; punctuation and underscores separate, so that
    `max_result_window` is three words. Scripts written without spaces (Chinese, Japanese, Thai, Lao, Khmer,
    Myanmar) become overlapping pairs of characters, a lone character stays one; Korean has spaces and stays.
    Where `segmented`, they become words by ICU's dictionaries instead.
    """
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    text = text.lower().replace("_", " ")
    if not text.isascii():
        text = insert_spaces(text) if segmented else RUN.sub(_bigrams, text)
    return _WORD.findall(text)


def tokens(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of what `words` makes words of, in the text as it is: to mark them where they stand.

    Runs of scripts without spaces come as overlapping pairs of characters, as there.
    """
    for match in _SPAN.finditer(text):
        start, end = match.span()
        if RUN.match(match.group()):
            yield from ((at, min(at + 2, end)) for at in range(start, max(start + 1, end - 1)))
        else:
            yield start, end


class _Stems(dict[str, str]):
    """Word → its stem, "" for a stop word; each word is stemmed once."""

    def __init__(self, stemmer: str | None, stop_words: frozenset[str]) -> None:
        super().__init__()
        self._stem: Callable[[str], str] = Stemmer.Stemmer(stemmer, 0).stemWord if stemmer else str
        self._stop_words = stop_words

    def __missing__(self, word: str) -> str:
        stem = "" if word in self._stop_words else self._stem(word)
        self[word] = stem
        return stem


@cache
def _stop_words() -> frozenset[str]:
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    return frozenset(STOPWORDS_EN_PLUS) | frozenset("d ll m re s t ve".split())


class Analyzer:
    """Texts to terms: the words, without stop words, stemmed.

    Args:
        stemmer: name of a Snowball stemmer, such as german; None keeps the words as they are. The pairs of characters
            that stand for scripts without spaces go through every stemmer unchanged.
        stop_words: leave English stop words out.

    Raises:
        SettingsError: there is no such stemmer.
    """

    def __init__(self, stemmer: str | None = "english", stop_words: bool = True) -> None:
        if stemmer is not None and stemmer not in Stemmer.algorithms():
            languages = ", ".join(Stemmer.algorithms())
            raise SettingsError(
                f"bm25.stemmer: there is no Snowball stemmer {stemmer}; null for none, or one of {languages}"
            )
        self._stems = _Stems(stemmer, _stop_words() if stop_words else frozenset())

    def tokenize(self, text: str) -> list[str]:
        """Terms of `text`, in order."""
        return [stem for stem in map(self._stems.__getitem__, words(text)) if stem]

    def stem(self, word: str) -> str:
        """The term of one word of `words`; "" for a stop word."""
        return self._stems[word]


@dataclass(frozen=True)
class TermSequences:
    """Texts as columns of terms, one after the other.

    Attributes:
        columns: text i is `columns[starts[i]:starts[i + 1]]`, int32.
        starts: shape (n_texts + 1,).
    """

    columns: NDArray[np.int32]
    starts: NDArray[np.int64]

    def counts(self, n_terms: int) -> sparse.csr_matrix:
        """How often each text holds each term: CSR, shape (n_texts, n_terms), float32, columns sorted within a row."""
        from scipy import sparse

        ones = np.ones(len(self.columns), dtype=np.float32)
        shape = (len(self.starts) - 1, n_terms)
        matrix = sparse.csr_matrix((ones, self.columns, self.starts), shape=shape, copy=True)  # sorted in place below
        matrix.sum_duplicates()
        return matrix


def inverse_frequency(document_frequency: NDArray[np.int64], n_chunks: int) -> NDArray[np.float32]:
    """log((n_chunks + 1) / (document frequency + 0.5)), above 0 for every term; shape kept."""
    return np.asarray(np.log((n_chunks + 1) / (document_frequency + 0.5)), dtype=np.float32)


class TermSpace:
    """The terms of a corpus and how often each chunk holds each.

    Args:
        batches: the chunks' texts.
        analyzer: makes terms of them; by default English stems without stop words.

    Attributes:
        analyzer: the same.
        vocabulary: term → column, in order of first appearance.
        counts: CSR matrix of shape (n_chunks, n_terms), float32, columns sorted within a row.
    """

    def __init__(self, batches: Iterable[Sequence[str]], analyzer: Analyzer | None = None) -> None:
        from scipy import sparse

        self.analyzer = analyzer or Analyzer()
        self.vocabulary: dict[str, int] = {}
        blocks = [self._sequences(batch, grow=True).counts(len(self.vocabulary)) for batch in batches]
        for block in blocks:
            block.resize(block.shape[0], len(self.vocabulary))
        empty = sparse.csr_matrix((0, len(self.vocabulary)), dtype=np.float32)
        self.counts: sparse.csr_matrix = sparse.vstack([empty, *blocks], format="csr", dtype=np.float32)

    def tokenize(self, text: str) -> list[str]:
        """Terms of `text` in order, those that the corpus does not hold included."""
        return self.analyzer.tokenize(text)

    def count(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Counts of the corpus's terms in `texts`, CSR, shape (len(texts), n_terms); others are dropped."""
        return self.sequences(texts).counts(len(self.vocabulary))

    def sequences(self, texts: Sequence[str]) -> TermSequences:
        """The corpus's terms in `texts`, in order; others are dropped."""
        return self._sequences(texts, grow=False)

    @property
    def n_chunks(self) -> int:
        """Number of chunks the space was built from."""
        return int(self.counts.shape[0])

    @cached_property
    def document_frequency(self) -> NDArray[np.int64]:
        """In how many chunks each term occurs, shape (n_terms,)."""
        return np.bincount(self.counts.indices, minlength=len(self.vocabulary)).astype(np.int64)

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """`inverse_frequency` of each term, shape (n_terms,)."""
        return inverse_frequency(self.document_frequency, self.n_chunks)

    @cached_property
    def frequent(self) -> NDArray[np.int64]:
        """Columns of the at most 30,000 terms found in most chunks, ascending: what vectors are fitted on."""
        order = np.argsort(-self.document_frequency, kind="stable")[:_MAX_FREQUENT]
        return np.sort(order).astype(np.int64)

    @cached_property
    def frequent_terms(self) -> list[str]:
        """The terms of `frequent`, in that order."""
        by_column = list(self.vocabulary)
        return [by_column[column] for column in self.frequent]

    def only_frequent(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """Rows of counts cut to the columns of `frequent`: shape (n_rows, len(frequent))."""
        return counts if len(self.frequent) == counts.shape[1] else counts[:, self.frequent]

    def sample(self, max_chunks: int) -> sparse.csr_matrix:
        """Counts of `max_chunks` chunks, always the same ones, or of all; frequent terms only."""
        if self.n_chunks <= max_chunks:
            return self.only_frequent(self.counts)
        drawn = np.random.default_rng(_SAMPLE_SEED).choice(self.n_chunks, size=max_chunks, replace=False)
        return self.only_frequent(self.counts[np.sort(drawn)])

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of the vocabulary and the counts: equal for equal corpora."""
        digest = hashlib.sha256("\n".join(self.vocabulary).encode())
        for part in (self.counts.indptr.astype("<i8"), self.counts.indices.astype("<i8"), self.counts.data):
            digest.update(part.tobytes())
        return digest.hexdigest()[:16]

    def _sequences(self, texts: Sequence[str], *, grow: bool) -> TermSequences:
        rows = list(self._columns(texts, grow=grow))
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        columns = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        return TermSequences(columns, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    def _columns(self, texts: Sequence[str], *, grow: bool) -> Iterator[list[int]]:
        vocabulary = self.vocabulary
        for text in texts:
            terms = self.tokenize(text)
            if grow:
                yield [vocabulary.setdefault(term, len(vocabulary)) for term in terms]
            else:
                yield [vocabulary[term] for term in terms if term in vocabulary]
