"""Names of the systems that an adapted encoder is compared with."""

BM25, BASE, ADAPTED = "BM25", "base", "adapted"
WHITENED, FEEDBACK = "whitened base", "base with feedback"  # `whitened` is a method of `adapt compare`
TERMS = "whitened base with term vectors"

CENTERING = "whitened base, centering"
"""Name of the second parameter of `WHITENED`; no system."""


def by_ranks(encoder: str) -> str:
    """The fusion of BM25 with an encoder by rank."""
    return f"BM25 + {encoder}, RRF"


def by_scores(encoder: str) -> str:
    """The weighted fusion of BM25 with an encoder by score."""
    return f"BM25 + {encoder}, weighted"


LABEL_FREE = (
    BM25,
    BASE,
    WHITENED,
    TERMS,
    FEEDBACK,
    by_ranks(BASE),
    by_ranks(WHITENED),
    by_scores(BASE),
    by_scores(WHITENED),
)
"""Systems that use no label, except to select one setting."""
