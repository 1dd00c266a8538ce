"""Places of a cluster within one process: what travels is pickled, what comes back lies in files."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.sharding import Pieces, Shard, load_shard_result, save_shard_result

T = TypeVar("T", bound=Shard)


class Elsewhere:
    """A cluster's way in one process: shards pickled, results through files, all begun before the first is read.

    Args:
        store: where results wait.
        places: how many it says to have.
        at_once: how many shards are worked on side by side.

    Attributes:
        names: of all shards so far.
        waited: where the results of these wait.
    """

    def __init__(self, store: Store, places: int, at_once: int = 1) -> None:
        self.store, self.places, self._at_once = store, places, at_once
        self.names: list[str] = []
        self.waited: list[str] = []

    def __call__(self, work: Callable[[T], Pieces], shards: Sequence[T]) -> Iterator[Pieces]:
        self.names += [shard.name for shard in shards]
        self.waited += [shard.folder for shard in shards]
        travelled = [pickle.loads(pickle.dumps((work, shard))) for shard in shards]
        with ThreadPoolExecutor(self._at_once) as pool:
            counts = list(pool.map(lambda one: save_shard_result(self.store, one[1].folder, one[0](one[1])), travelled))
        return (load_shard_result(self.store, shard.folder, count) for shard, count in zip(shards, counts, strict=True))
