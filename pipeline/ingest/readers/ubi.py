"""Logs of User Behavior Insights (UBI 1.x): events whose query may be told elsewhere, and lists that were shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.ingest.columns import event_columns, search_columns
from darklode.pipeline.ingest.files import File
from darklode.pipeline.ingest.log_rows import Rules, Staging, usable, without_personal_data
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.rejects import Aside, Intake
from darklode.pipeline.ingest.rows import Block, Mask, blank, emptied, joined, mask, weed

SHOWN = ["impression", "view"]
NEITHER = "is neither impression nor click"
NAME_CHARACTERS, MOST_NAMES = 40, 100
SEARCHES = 4096
SEPARATOR = "\x1f"


@dataclass(frozen=True)
class UbiFiles:
    """What is read for one partition: its events, its queries, and those of the days before, nearest first."""

    events: Sequence[File]
    searches: Sequence[File]
    earlier: Sequence[File] = field(default=())


def read_ubi(files: UbiFiles, rules: Rules, intake: Intake, staging: Staging) -> None:
    """Stage a partition's impressions and clicks, and the lists of those searches that have no impression.

    Memory holds the queries of the partition and of the days before.

    Raises:
        InputError: a file cannot be read, or lacks a column.
    """
    own = list(_searches(files.searches, rules, intake))
    with intake.deaf():
        earlier = list(_searches(files.earlier, rules, intake))
    texts, others = _Texts([*own, *earlier]), _Others(rules.settings.other_actions)
    columns = event_columns(rules.settings.columns)
    for file in files.events:
        for block in read_tabular(file, None, columns, intake, rules.ingest.max_row_bytes):
            staging.add(usable(_impressions(block, texts, others, rules, intake), rules, intake))
    least = 1 - rules.shift(zero=staging.zero)
    for block in own:
        for hits in _unseen_lists(block, staging, least):
            intake.saw(len(hits))
            staging.add(usable(hits, rules, intake))


def _searches(files: Sequence[File], rules: Rules, intake: Intake) -> Iterator[Block]:
    """Queries that have an id. A query is no impression, and counts as a row only where it is turned away."""
    columns = search_columns(rules.settings.columns)
    for file in files:
        for block in read_tabular(file, None, columns, intake, rules.ingest.max_row_bytes):
            named = weed(block, [("missing query_id", blank(block.columns["search_id"]))], intake)
            intake.saw(-len(named))
            if len(named):
                yield _of_session(_complete(named).completed(rules.ingest))


def _complete(block: Block) -> Block:
    """The block with all roles of a query, also those that its file does not have."""
    roles = ("search_id", "session_id", "client_id", "timestamp", "query", "hits", "tenant")
    columns = {role: block.columns.get(role, block.nulls()) for role in roles}
    return Block(block.files, columns, block.lines)


def _of_session(block: Block) -> Block:
    """The block with its clients for sessions where it names none."""
    own, client = (emptied(block.columns.get(role, block.nulls())) for role in ("session_id", "client_id"))
    return Block(block.files, block.columns | {"session_id": pc.coalesce(own, client)}, block.lines)


def _impressions(block: Block, texts: "_Texts", others: "_Others", rules: Rules, intake: Intake) -> Block:
    """The impressions and clicks among events, with the texts of their queries."""
    actions = pc.utf8_lower(emptied(block.columns["action"]))
    clicks = pc.utf8_lower(pa.array(rules.settings.click_actions, pa.string()))
    shown, clicked = mask(pc.is_in(actions, pa.array(SHOWN))), mask(pc.is_in(actions, clicks))
    wanted = shown | clicked
    missing = mask(actions.is_null())
    weed(block, [("missing action", missing)], intake)
    weed(block, others.faults(actions, ~wanted & ~missing), Aside(intake))
    rest = block.filter(wanted)
    truths = pc.if_else(pa.array(clicked[wanted]), "true", "false")
    doc_ids = rest.columns.get("doc_id", rest.nulls())
    given = Block(rest.files, rest.columns | {"clicked": truths, "doc_id": doc_ids}, rest.lines)
    told = texts.fill(_of_session(given.completed(rules.ingest)))
    return weed(told, [("its query_id has no query", blank(told.columns["query"]))], intake)


class _Others:
    """The actions that are neither impressions nor clicks; the first hundred are told apart, and who knows them."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = {action.lower() for action in known}
        self._named: dict[str, str] = {}

    def faults(self, actions: pa.Array, bad: Mask) -> list[tuple[str, Mask]]:
        """The reasons why rows are turned away, and where they hold; together they hold wherever `bad` does."""
        for action in actions.filter(pa.array(bad)).unique().drop_null().to_pylist():
            if action not in self._named and len(self._named) < MOST_NAMES:
                name = without_personal_data(pa.array([action]))[0].as_py()[:NAME_CHARACTERS]
                unknown = "" if action in self._known else ", as far as logs.click_actions and other_actions know"
                self._named[action] = f"action {name} {NEITHER}{unknown}"
        codes = pc.index_in(actions, pa.array(self._named, pa.string()))
        named = [(reason, mask(pc.equal(codes, at))) for at, reason in enumerate(self._named.values())]
        return [*named, (f"action {NEITHER}", bad)]


def _unseen_lists(block: Block, staging: Staging, least: int) -> Iterator[Block]:
    """The documents that searches listed, a row each, for the searches without an impression."""
    listed = block.filter(~blank(block.columns["hits"]))
    unseen = listed.filter(~staging.shown(listed.columns["tenant"], emptied(listed.columns["search_id"])))
    for begin in range(0, len(unseen), SEARCHES):
        some = unseen.filter((np.arange(len(unseen)) >= begin) & (np.arange(len(unseen)) < begin + SEARCHES))
        lists = pc.split_pattern(some.columns["hits"], "\n")
        parents = pc.list_parent_indices(lists)
        starts = lists.offsets.to_numpy()[:-1] - lists.offsets[0].as_py()
        places = np.arange(len(parents)) - starts[parents.to_numpy()] + least
        roles = ("tenant", "search_id", "session_id", "timestamp", "query")
        columns = {role: some.columns[role].take(parents) for role in roles}
        columns |= {"doc_id": pc.list_flatten(lists), "position": pa.array(places).cast(pa.string())}
        columns["clicked"] = pa.repeat("false", len(parents))
        yield Block(some.files.take(parents), columns, some.lines.take(parents))


class _Texts:
    """The texts of queries by tenant and query_id; the first that is told counts."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        told = [block.filter(~blank(block.columns["query"])) for block in blocks]
        self._keys, self._texts = pa.array([], pa.string()), pa.array([], pa.string())
        if told:
            whole = joined([Block(one.files, _only(one), one.lines) for one in told])
            self._keys, self._texts = _keys(whole), whole.columns["query"]

    def fill(self, block: Block) -> Block:
        """The block with the texts of those queries that it does not tell itself."""
        given = emptied(block.columns.get("query", block.nulls()))
        if given.null_count:
            found = self._texts.take(pc.index_in(_keys(block), self._keys))
            given = pc.coalesce(given, found)
        return Block(block.files, block.columns | {"query": given}, block.lines)


def _only(block: Block) -> dict[str, pa.Array]:
    return {role: block.columns[role] for role in ("tenant", "search_id", "query")}


def _keys(block: Block) -> pa.Array:
    ids = emptied(block.columns.get("search_id", block.nulls()))
    return pc.binary_join_element_wise(block.columns["tenant"], ids, SEPARATOR)
