"""The text analyzer, and the term counts of a corpus on which BM25 and the embedded encoders are fitted."""

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

from darklode.pipeline.base.bm25s_import import bm25s_stop_words
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.segmentation import UNSPACED_CLASS, UNSPACED_RUN, insert_spaces

if TYPE_CHECKING:
    from scipy import sparse

_MAX_FREQUENT = 30_000  # vocabulary of the fitted vectors; rarer terms co-occur too seldom to be learned
_SAMPLE_SEED = 20170401  # fixed: the same corpus always gives the same sample
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff"  # `\w` alone cuts words at vowel signs
_WORD = re.compile(rf"[\w{_MARKS}{UNSPACED_CLASS}]+")
_SPAN = re.compile(rf"{UNSPACED_RUN.pattern}|(?:(?![_{UNSPACED_CLASS}])[\w{_MARKS}])+")


def _bigrams(run: re.Match[str]) -> str:
    """Overlapping character pairs of a run of a script without spaces, separated by spaces."""
    text = run.group()
    pairs = [text[i : i + 2] for i in range(len(text) - 1)] or [text]
    return f" {' '.join(pairs)} "


def words(text: str, *, segmented: bool = False) -> list[str]:
    """Lower-case words of `text` (NFKC), in order, stop words included.

    A word is a run of Unicode letters, digits and vowel signs. Punctuation and underscores separate words, so
    `max_result_window` is three words. Text in scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Myanmar)
    is split into overlapping pairs of characters; a single character is kept as it is. Korean has spaces and is
    split at them. A change of this function changes every index, and all scores with it.

    Args:
        text: any text.
        segmented: split scripts without spaces into the words of ICU's dictionaries, instead of pairs.
    """
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    text = text.lower().replace("_", " ")
    if not text.isascii():
        text = insert_spaces(text) if segmented else UNSPACED_RUN.sub(_bigrams, text)
    return _WORD.findall(text)


def tokens(text: str) -> Iterator[tuple[int, int]]:
    """Start and end offsets of the words of `text`, in the original text, for highlighting.

    Splits like `words` without `segmented`: scripts without spaces give overlapping pairs of characters.
    """
    for match in _SPAN.finditer(text):
        start, end = match.span()
        if UNSPACED_RUN.match(match.group()):
            yield from ((position, min(position + 2, end)) for position in range(start, max(start + 1, end - 1)))
        else:
            yield start, end


class _Stems(dict[str, str]):
    """Cache from a word to its stem, or to "" for a stop word."""

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
    return frozenset(bm25s_stop_words()) | frozenset("d ll m re s t ve".split())


class Analyzer:
    """Turns texts into terms: splits into words, removes stop words and stems.

    Queries and documents must go through the same analyzer; otherwise their terms do not match.

    Args:
        stemmer: name of a Snowball stemmer, such as german; None disables stemming. Every stemmer leaves the
            character pairs of scripts without spaces unchanged.
        stop_words: remove English stop words.

    Raises:
        SettingsError: Snowball has no stemmer of that name.
    """

    def __init__(self, stemmer: str | None = "english", stop_words: bool = True) -> None:
        if stemmer is not None and stemmer not in Stemmer.algorithms():
            languages = ", ".join(Stemmer.algorithms())
            raise SettingsError(
                f"bm25.stemmer: there is no Snowball stemmer {stemmer}; null for none, or one of {languages}"
            )
        self._stems = _Stems(stemmer, _stop_words() if stop_words else frozenset())

    def tokenize(self, text: str) -> list[str]:
        """Terms of `text`, in order, with repetitions."""
        return [stem for stem in map(self._stems.__getitem__, words(text)) if stem]

    def stem(self, word: str) -> str:
        """Term of a word that `words` returned; "" for a stop word."""
        return self._stems[word]


@dataclass(frozen=True)
class TermSequences:
    """Texts as sequences of term ids, stored in one flat array.

    Attributes:
        columns: term ids (columns of `TermSpace.counts`), int32; text i is `columns[starts[i]:starts[i + 1]]`.
        starts: offset of each text in `columns` and, last, the length of `columns`; shape (n_texts + 1,).
    """

    columns: NDArray[np.int32]
    starts: NDArray[np.int64]

    def counts(self, n_terms: int) -> sparse.csr_matrix:
        """Term counts per text: CSR, shape (n_texts, n_terms), float32, columns sorted within a row."""
        from scipy import sparse

        ones = np.ones(len(self.columns), dtype=np.float32)
        shape = (len(self.starts) - 1, n_terms)
        # A copy, because sum_duplicates sorts in place and would destroy the order of the terms in `columns`.
        matrix = sparse.csr_matrix((ones, self.columns, self.starts), shape=shape, copy=True)
        matrix.sum_duplicates()
        return matrix


def inverse_frequency(document_frequency: NDArray[np.int64], n_chunks: int) -> NDArray[np.float32]:
    """Inverse document frequency, log((n_chunks + 1) / (document_frequency + 0.5)): above 0, of the same shape."""
    return np.asarray(np.log((n_chunks + 1) / (document_frequency + 0.5)), dtype=np.float32)


class TermSpace:
    """Vocabulary of a corpus, and the term counts of its chunks.

    Args:
        batches: texts of the chunks, in batches.
        analyzer: turns the texts into terms; by default English stems without stop words.

    Attributes:
        analyzer: the analyzer; queries must be analyzed with it too.
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
        """Terms of `text` in order, including terms that do not occur in the corpus."""
        return self.analyzer.tokenize(text)

    def count(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Term counts of `texts`: CSR, shape (len(texts), n_terms); terms outside the vocabulary are ignored."""
        return self.sequences(texts).counts(len(self.vocabulary))

    def sequences(self, texts: Sequence[str]) -> TermSequences:
        """Term ids of `texts`, in order; terms outside the vocabulary are ignored."""
        return self._sequences(texts, grow=False)

    @property
    def n_chunks(self) -> int:
        """Number of chunks of the corpus."""
        return int(self.counts.shape[0])

    @cached_property
    def document_frequency(self) -> NDArray[np.int64]:
        """Number of chunks in which each term occurs, shape (n_terms,)."""
        return np.bincount(self.counts.indices, minlength=len(self.vocabulary)).astype(np.int64)

    @cached_property
    def idf(self) -> NDArray[np.float32]:
        """`inverse_frequency` of each term, shape (n_terms,)."""
        return inverse_frequency(self.document_frequency, self.n_chunks)

    @cached_property
    def frequent(self) -> NDArray[np.int64]:
        """Columns of the 30,000 terms with the highest document frequency (or of all), ascending.

        Encoders fit their vectors on these columns only.
        """
        most_frequent = np.argsort(-self.document_frequency, kind="stable")[:_MAX_FREQUENT]
        return np.sort(most_frequent).astype(np.int64)

    @cached_property
    def frequent_terms(self) -> list[str]:
        """Terms of the columns `frequent`, in the same order."""
        terms = list(self.vocabulary)
        return [terms[column] for column in self.frequent]

    def only_frequent(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        """The columns `frequent` of a count matrix, shape (n_rows, len(frequent))."""
        return counts if len(self.frequent) == counts.shape[1] else counts[:, self.frequent]

    def sample(self, max_chunks: int) -> sparse.csr_matrix:
        """Counts of the frequent terms in a random sample of `max_chunks` chunks, or in all if there are fewer.

        The seed is fixed: the same corpus gives the same sample.
        """
        if self.n_chunks <= max_chunks:
            return self.only_frequent(self.counts)
        sampled_rows = np.random.default_rng(_SAMPLE_SEED).choice(self.n_chunks, size=max_chunks, replace=False)
        return self.only_frequent(self.counts[np.sort(sampled_rows)])

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of vocabulary and counts, equal for equal corpora; keys the caches of fitted encoders."""
        digest = hashlib.sha256("\n".join(self.vocabulary).encode())
        # Index arrays are int32 or int64 depending on the size; a fixed type keeps the digest independent of that.
        for array in (self.counts.indptr.astype("<i8"), self.counts.indices.astype("<i8"), self.counts.data):
            digest.update(array.tobytes())
        return digest.hexdigest()[:16]

    def _sequences(self, texts: Sequence[str], *, grow: bool) -> TermSequences:
        """Term ids of texts.

        Args:
            texts: texts to analyze.
            grow: add new terms to the vocabulary, instead of ignoring them.
        """
        id_lists = list(self._columns(texts, grow=grow))
        lengths = np.fromiter(map(len, id_lists), dtype=np.int64, count=len(id_lists))
        columns = np.fromiter(chain.from_iterable(id_lists), dtype=np.int32, count=int(lengths.sum()))
        return TermSequences(columns, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    def _columns(self, texts: Sequence[str], *, grow: bool) -> Iterator[list[int]]:
        """Yield the term ids of each text; see `_sequences`."""
        vocabulary = self.vocabulary
        for text in texts:
            terms = self.tokenize(text)
            if grow:
                yield [vocabulary.setdefault(term, len(vocabulary)) for term in terms]
            else:
                yield [vocabulary[term] for term in terms if term in vocabulary]
