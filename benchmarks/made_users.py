"""Simulated users whose relevant documents are known, shown lists by a ranker of middling quality.

Each query has its own documents, some of them relevant. The ranker knows of each query and document a score that is
only partly right, and orders every search by it with some noise. Four sorts of users click on what it shows, each by
other rules, so that no click model is measured on its own assumptions alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.schemas.mined_tables import IMPRESSIONS

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
CANDIDATES, SHOWN, RELEVANT = 30, 10, 6
SIGNAL, NOISE = 1.0, 0.4
DRAWN, MISTAKEN = 0.6, 0.08
"""How likely a user clicks on a relevant and on another document that they look at, on average."""


def by_place(attracts: Floats, chance: np.random.Generator) -> Bools:
    """A user looks at place r with probability 1 / r, and clicks there on what attracts them (PBM)."""
    looked = chance.random(attracts.shape) < 1 / np.arange(1, attracts.shape[1] + 1)
    return looked & (chance.random(attracts.shape) < attracts)


def from_the_top(attracts: Floats, chance: np.random.Generator) -> Bools:
    """A user reads from the top, and stops after a click with 7 chances in 10, else with 1 in 10 (cascade, DBN)."""
    wanted = chance.random(attracts.shape) < attracts
    stops = chance.random(attracts.shape) < np.where(wanted, 0.7, 0.1)
    before: NDArray[np.int64] = np.cumsum(stops, axis=1) - stops
    return np.asarray(wanted & (before == 0))


def trusting(attracts: Floats, chance: np.random.Generator) -> Bools:
    """As by place, but at the top they click on nearly anything they look at (trust bias, Agarwal et al. 2019)."""
    places = np.arange(1, attracts.shape[1] + 1)
    looked = chance.random(attracts.shape) < 1 / np.sqrt(places)
    trust = 0.5 / places
    return looked & (chance.random(attracts.shape) < trust + (1 - trust) * attracts)


def everywhere(attracts: Floats, chance: np.random.Generator) -> Bools:
    """A user looks at all places alike (DCTR): there is nothing to correct."""
    return chance.random(attracts.shape) < attracts / 2


USERS: dict[str, Callable[[Floats, np.random.Generator], Bools]] = {
    "by place": by_place,
    "from the top": from_the_top,
    "trusting": trusting,
    "everywhere": everywhere,
}


@dataclass(frozen=True)
class World:
    """Queries, their documents, and what is relevant.

    Attributes:
        relevant: shape (n_queries, CANDIDATES).
        attracts: how likely a user who looks clicks, the same shape.
        scores: what the ranker thinks, the same shape.
    """

    relevant: Bools
    attracts: Floats
    scores: Floats

    @classmethod
    def made(cls, queries: int, seed: int) -> "World":
        """Draw one; a query's users click more or less readily, and a document attracts more or less than its like."""
        chance = np.random.default_rng(seed)
        relevant = np.argsort(chance.random((queries, CANDIDATES)), axis=1) < RELEVANT
        mean = np.where(relevant, DRAWN, MISTAKEN)
        readily = chance.lognormal(0, 0.4, (queries, 1))
        attracts = np.clip(chance.beta(4 * mean, 4 * (1 - mean)) * readily, 0.005, 0.95)
        scores = SIGNAL * relevant + chance.normal(size=relevant.shape)
        return cls(relevant, attracts, scores)

    def log(self, users: str, searches: NDArray[np.int64], seed: int) -> pa.Table:
        """Rows of `impressions`, of one day; `searches` names the query of each."""
        chance = np.random.default_rng(seed)
        seen = self.scores[searches] + NOISE * chance.normal(size=(len(searches), CANDIDATES))
        shown = np.argsort(-seen, axis=1)[:, :SHOWN]
        clicked = USERS[users](np.take_along_axis(self.attracts[searches], shown, axis=1), chance)
        return _rows(searches, shown, clicked)


def clicks_of_a_search(world: World, users: str) -> float:
    """Mean clicks of one search, from 20 searches of each query."""
    searches = np.repeat(np.arange(len(world.relevant)), 20)
    return float(pc.mean(world.log(users, searches, 99)["clicked"].cast(pa.int8())).as_py()) * SHOWN


def _rows(searches: NDArray[np.int64], shown: NDArray[np.int64], clicked: Bools) -> pa.Table:
    number = np.repeat(np.arange(len(searches)), SHOWN)
    query = _named("q", np.repeat(searches, SHOWN))
    ids = _named("s", number)
    return IMPRESSIONS.rows(
        {
            "tenant": pa.repeat("made", len(number)),
            "event_id": ids,
            "search_id": ids,
            "session_id": ids,
            "timestamp": pa.repeat(pa.scalar(0, pa.timestamp("us", tz="UTC")), len(number)),
            "query_id": query,
            "query": query,
            "doc_id": _named("d", shown.ravel()),
            "position": pa.array(np.tile(np.arange(1, SHOWN + 1, dtype=np.int32), len(searches))),
            "clicked": pa.array(clicked.ravel()),
        }
    )


def _named(letter: str, numbers: NDArray[np.int64]) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.string()), "")
