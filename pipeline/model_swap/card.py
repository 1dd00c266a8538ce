"""The card of a model swap: what mapped queries find, what re-embedding would find, and what both cost."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.card import cell, changed_settings, document, name_of, software, with_front_matter
from darklode.pipeline.model_swap.sample import SAMPLE_STAGE
from darklode.pipeline.model_swap.verdict import format_facts, format_partial, is_shipped, read_verdict
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER
from darklode.pipeline.train.release.card import USAGE_NOTE, licence
from darklode.pipeline.train.release.folder import recorded_difference
from darklode.schemas.settings import Settings

AGREEMENT_NOTE = """\
Share of a reference's first `k` among a system's first `k`, on held-out queries. `re-embedding`: new queries on new
vectors, what embedding all texts again would give. `index encoder`: old queries on old vectors, what no change would
give. `mapped` is the selected map. All systems search the old vectors; `no map` and `random orthogonal` learn
nothing."""

QUALITY_NOTE = "On the labelled test queries; `difference` is to the index encoder."

PARTIAL_NOTE = """\
Texts with new vectors are searched by the new encoder's query, the others by the mapped one, and both lists are merged
by score; a straight line, fitted on training queries, gives mapped scores the new scores of the same rank.
Heat: {heat}."""

CAVEATS = """\
The map changes queries only. What the old vectors do not represent, no query can find: Recall against re-embedding
shows how much that is. Use this encoder for queries only, and only with the index of the old encoder."""


def card(run: Run, settings: Settings, encoders: dict[str, SentenceTransformersSettings], source: str) -> bytes:
    """The card in Markdown.

    Args:
        run: a run with complete stages, and the saved folder if it is released.
        settings: the settings that the run used.
        encoders: the encoders `new` and `old`.
        source: the run that it was fitted on, as given.
    """
    tables = run.tables()
    row = read_verdict(tables)
    title = "Released" if is_shipped(tables) else "Not released: re-embedding is needed"
    head = [
        f"# {cell(name_of(run, settings))}",
        f"**{title}**: {cell(row['reason'])}.",
        *(f"{cell(sentence)}." for sentence in [*format_facts(run), *format_partial(tables)]),
        f"Queries by `{cell(encoders['new'].encoder_id())}`, index of `{cell(encoders['old'].encoder_id())}`. Map: "
        f"{cell(row['method'])} ({cell(row['setting'])}), selected on {row['validation_queries']:,} queries.",
        f"Fitted on the queries and texts of `{cell(source)}`; no label was used.",
    ]
    usage = USAGE_NOTE.format(folder=ENCODER_FOLDER, off=recorded_difference(run)) if is_shipped(tables) else ""
    last = [
        *("## Limits", CAVEATS),
        *(("## How to use it", usage) if usage else ()),
        *("## Settings that differ from the defaults", changed_settings(settings)),
        *("## Software", software(run), "## Licence", f"Of the new encoder: `{cell(licence(encoders['new']))}`."),
    ]
    front = {"library_name": "sentence-transformers", "license": licence(encoders["new"])}
    return with_front_matter(document(head, _tables(run, tables), last), front, {}).encode()


def _tables(run: Run, tables: Tables) -> Iterator[tuple[str, pa.Table, str]]:
    heat = run.manifests()[SAMPLE_STAGE.name].facts["heat"]
    yield "Recall on held-out queries", tables.read("swap_agreement"), AGREEMENT_NOTE
    yield "Labelled quality", tables.read("swap_quality"), QUALITY_NOTE
    yield "Partial re-embedding", tables.read("swap_partial"), PARTIAL_NOTE.format(heat=heat)
    yield "Maps", tables.read("swap_trials").sort_by("trial"), "Recall on the validation queries."
