"""Names of settings: all known keys, keys of other kinds, and suggestions for unknown keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from darklode.schemas.judging import JudgeSettings
from darklode.schemas.kinds import OfKind, UnknownKind, kind_of, nearest, section_in
from darklode.schemas.section import Section
from darklode.schemas.settings import Settings

NAME = "NAME"
"""Placeholder for a name that users choose: `encoders.NAME.model`."""

REMOVED = {
    "judge.max_disagreement": "the label that the model wrote is kept; verdicts.contradicted marks labels that its "
    "log-probabilities contradict",
    "generate.max_text_tokens": "texts are truncated to 1,024 tokens",
    "logs.other_actions": "it only changed the text of a reject reason",
    "admission.hold": "admission.false_alarm_rate=0 holds nothing back",
    "admission.hold_anomalous_days": "admission.false_alarm_rate=0 holds nothing back",
    "admission.max_robust_z": "admission.false_alarm_rate states the share of ordinary nights held back by chance",
    "admission.limit": "admission.false_alarm_rate states the share of ordinary nights held back by chance",
    "mining.median_share": "tiers have the shares of ScalingNote, Table 1",
    "mining.small_share": "tiers have the shares of ScalingNote, Table 1",
    "mining.patch_share": "a day's files are rewritten once 5 % of its triplets have changed",
    "semantic_ids.sample": "100 texts per centroid are used",
    "semantic_ids.iterations": "k-means runs 20 iterations",
}
"""Former settings and what replaced them. `without_former_keys` drops those of sections with a kind."""

RENAMED_SECTIONS = {"planner": "term_weighting", "towers": "distill", "vectors": "vector_search"}

RENAMED = {
    "clean.language_score": "clean.language_threshold",
    "clean.clusters": "clean.n_clusters",
    "clean.per_cluster": "clean.max_per_cluster",
    "encoders.NAME.key_env": "encoders.NAME.api_key_env",
    "encoders.NAME.query_parameters": "encoders.NAME.query_extra_body",
    "encoders.NAME.document_parameters": "encoders.NAME.document_extra_body",
    "encoders.NAME.max_tokens": "encoders.NAME.max_input_tokens (kind openai) or encoders.NAME.max_seq_length",
    "encoders.NAME.batch_texts": "encoders.NAME.batch_size",
    "encoders.NAME.batch_tokens": "encoders.NAME.max_batch_tokens",
    "encoders.NAME.in_flight": "encoders.NAME.max_concurrency",
    "encoders.NAME.give_up_after": "encoders.NAME.retry_timeout",
    "encoders.NAME.dimensions": "encoders.NAME.truncate_dim",
    "vectors.memory_mb": "vector_search.max_memory_mb",
    "vectors.gpu_memory_mb": "vector_search.max_gpu_memory_mb",
    "cache.dtype": "cache.vector_dtype",
    "pool.rule": "pool.method",
    "judge.depth": "judge.strategy",
    "triplets.min_probability": "labels.training_precision",
    "triplets.min_letters": "labels.min_letters",
    "adapt.min_probability": "labels.training_precision",
    "judge.recall": "judge.target_recall",
    "judge.human": "judge.human_labels",
    "judge.weights": "judge.panel_weights",
    "judge.key_env": "judge.api_key_env",
    "judge.give_up_after": "judge.retry_timeout",
    "judge.max_in_flight": "judge.max_concurrency",
    "judge.trust_name": "judge.trust_model_name",
    "judge.mode": "judge.response_format",
    "judge.parameters": "judge.extra_body",
    "judge.attempts": "judge.max_attempts",
    "judge.max_tokens": "judge.max_seq_length",
    "split.by": "split.group_by",
    "split.generated": "split.generated_queries",
    "triplets.same_document": "triplets.allow_same_document_negatives",
    "triplets.negatives": "triplets.num_negatives",
    "triplets.margin": "triplets.relative_margin",
    "audit.bootstrap": "evaluate.n_resamples",
    "validation.bootstrap": "evaluate.n_resamples",
    "evaluate.bootstrap": "evaluate.n_resamples",
    "evaluate.flips": "evaluate.permutations",
    "evaluate.labels": "evaluate.human_labels",
    "adapt.start": "adapt.init",
    "adapt.rank": "adapt.lora_rank",
    "adapt.alpha": "adapt.lora_alpha",
    "adapt.targets": "adapt.target_modules",
    "adapt.pairs": "adapt.positives_per_query",
    "adapt.in_batch": "adapt.in_batch_negatives",
    "adapt.anchor": "adapt.l2_to_base",
    "adapt.negatives": "adapt.num_negatives",
    "adapt.draw": "adapt.negatives_per_step",
    "adapt.margin": "adapt.relative_margin",
    "adapt.same_document": "adapt.allow_same_document_negatives",
    "adapt.steps": "adapt.max_steps",
    "adapt.batch": "adapt.batch_size",
    "adapt.soft_targets": "adapt.targets",
    "adapt.judge_holes": "adapt.unjudged_budget",
    "towers.layers": "distill.student_layers",
    "towers.student": "distill.student_model",
    "towers.steps": "distill.max_steps",
    "towers.batch": "distill.batch_size",
    "towers.held_out": "distill.eval_queries",
    "dual.layers": "dual.query_tower_layers",
    "dual.nested": "dual.matryoshka_dims",
    "dual.margin": "dual.triplet_margin",
    "dual.margin_weight": "dual.margin_loss_weight",
    "dual.steps": "dual.max_steps",
    "dual.batch": "dual.batch_size",
    "dual.held_out": "dual.eval_queries",
    "dual.checkpointing": "dual.gradient_checkpointing",
    "laws.sizes": "laws.train_sizes",
    "laws.sources": "laws.label_sources",
    "laws.seeds": "laws.n_seeds",
    "index.dimensions": "index.truncate_dim",
    "index.sample": "index.train_size",
    "index.rerank": "index.refine_factor",
    "index.recall": "index.target_recall",
    "index.queries": "index.tuning_queries",
    "index.links": "index.hnsw_m",
    "index.construction": "index.ef_construction",
    "index.bytes": "index.code_size",
    "index.projected": "index.projection_dim",
    "semantic_ids.codes": "semantic_ids.codebook_size",
    "generate.texts": "generate.max_texts",
    "generate.round_trip": "generate.round_trip_depth",
    "generate.leave_out": "generate.exclude_retrievers",
    "generate.examples": "generate.n_examples",
    "generate.max_tokens": "generate.max_seq_length",
    "generate.query_tokens": "generate.max_new_tokens",
    "logs.columns.arm": "logs.columns.variant",
    "logs.late_days": "logs.max_late_days",
    "click.min_ratio": "click.min_click_ratio",
    "click.negatives_from": "click.negative_window",
    "relevance.max_tokens": "relevance.max_seq_length",
    "planner.key_env": "term_weighting.api_key_env",
    "planner.parameters": "term_weighting.extra_body",
    "planner.max_in_flight": "term_weighting.max_concurrency",
    "planner.give_up_after": "term_weighting.retry_timeout",
    "associate.max_per_query": "associate.max_lenders_per_query",
    "mining.test_pool": "mining.test_pool_size",
    "review.pairs": "review.max_pairs",
    "review.shared": "review.overlap_share",
    "runner.cpus_per_task": "runner.num_cpus",
    "runner.gpus_per_task": "runner.num_gpus",
}
"""New names by former name. A former name is an error that gives the new name, not an alias."""


@dataclass(frozen=True)
class UnknownKey:
    """A key that is not a setting.

    Attributes:
        path: the key; for an unknown kind, its section, whose other keys cannot be checked.
        message: error message with the new name of the setting, the kind that has it, or the nearest known key.
    """

    path: str
    message: str


@dataclass(frozen=True)
class Key:
    """A setting.

    Attributes:
        path: dotted name, with its sections.
        field: default, bounds and description.
        kind: the kind that has it; empty for settings of all kinds.
    """

    path: str
    field: FieldInfo
    kind: str = ""


def keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[Key]:
    """Every setting: those of each section, and those that each built-in kind adds."""
    for name, field in model.model_fields.items():
        section, mark = section_in(field), kind_of(field)
        if section:
            yield from keys(section, f"{prefix}{name}.")
        elif mark and _is_section(field):
            yield from _keys_of_kinds(mark, f"{prefix}{name}.")
        elif mark and _is_named(field):
            yield from _keys_of_kinds(mark, f"{prefix}{name}.{NAME}.")
        else:
            yield Key(prefix + name, field)


def _keys_of_kinds(mark: OfKind, prefix: str) -> Iterator[Key]:
    yield from keys(mark.base, prefix)
    for kind in mark.group.own_kinds():
        own = mark.section(kind).model_fields.items()
        yield from (Key(prefix + name, field, kind) for name, field in own if name not in mark.base.model_fields)


def kinds() -> Iterator[tuple[str, OfKind]]:
    """The sections with kinds, by name."""
    for name, field in Settings.model_fields.items():
        if mark := kind_of(field):
            yield (name if _is_section(field) else f"{name}.{NAME}"), mark


def known_keys() -> list[str]:
    """Dotted names of all settings, each once."""
    return list(dict.fromkeys(key.path for key in keys()))


def _is_section(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is None


def _is_named(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict


def unknown_keys(
    values: Mapping[Any, Any], model: type[BaseModel] = Settings, prefix: str = ""
) -> Iterator[UnknownKey]:
    """The keys in nested plain values that are not settings; values themselves are not checked.

    Reports unknown keys, keys of another kind, sections that are no mapping, and unknown kinds.
    """
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None:
            yield UnknownKey(f"{prefix}{name}", _unknown_key_message(f"{prefix}{name}", value))
        else:
            yield from _unknown_below(field, value, f"{prefix}{name}")


def _unknown_below(field: FieldInfo, value: Any, path: str) -> Iterator[UnknownKey]:
    section, mark = section_in(field), kind_of(field)
    if (section or (mark and (_is_section(field) or _is_named(field)))) and not isinstance(value, Mapping):
        yield _not_a_section(path)
    elif section:
        yield from unknown_keys(value, section, f"{path}.")
    elif mark and _is_section(field):
        yield from _unknown_in_kind(mark, value, path)
    elif mark and _is_named(field):
        for name, child in value.items():
            yield from _unknown_in_kind(mark, child, f"{path}.{name}")
    elif mark:
        for number, member in enumerate(value if isinstance(value, list | tuple) else ()):
            yield from _unknown_in_kind(mark, member, f"{path}.{number}")
    elif isinstance(value, Mapping) and get_origin(field.annotation) is not dict and value:
        yield UnknownKey(path, _unknown_key_message(path, value))


def _unknown_in_kind(mark: OfKind, values: Any, path: str) -> Iterator[UnknownKey]:
    if not isinstance(values, Mapping):
        yield _not_a_section(path)
        return
    try:
        kind = mark.kind_in(values)
        section = mark.section(kind)
    except UnknownKind as error:
        yield UnknownKey(path, f"{path}.kind: {error}")
        return
    for name, value in values.items():
        field = section.model_fields.get(name)
        if field is None:
            yield UnknownKey(f"{path}.{name}", _unknown_in_kind_message(mark, kind, path, str(name)))
        else:
            yield from _unknown_below(field, value, f"{path}.{name}")


def _not_a_section(path: str) -> UnknownKey:
    return UnknownKey(path, f"{path} is a section; set {path}.<key> or leave it out")


def _unknown_key_message(path: str, value: Any) -> str:
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        path = f"{path}.{name}"
    if changed := _changed_key_message(path, path):
        return changed
    if isinstance(value, Mapping) or path in known_keys():
        return f"{path}: there is no such section; a section's keys stand below it, without dots"
    return f"there is no setting {path}; {nearest(path, known_keys())}"


def _changed_key_message(path: str, *names: str) -> str:
    """Error message for a key that was renamed or removed; empty for other keys.

    Args:
        path: the key as the user gave it.
        names: its possible names in `REMOVED` and `RENAMED`.
    """
    for name in names:
        section, _, key = name.partition(".")
        in_new_section = f"{RENAMED_SECTIONS[section]}.{key}" if key and section in RENAMED_SECTIONS else ""
        if new := RENAMED.get(name, in_new_section):
            return f"{path} was renamed: it is now {new}"
        if reason := REMOVED.get(name):
            return f"{path} was removed: {reason}"
    return ""


def _unknown_in_kind_message(mark: OfKind, kind: str, path: str, name: str) -> str:
    """Error message for a key that the kind does not have: its new name, the kinds that have it, or the nearest key."""
    section = path.partition(".")[0]
    if changed := _changed_key_message(f"{path}.{name}", f"{section}.{name}", f"{section}.{NAME}.{name}"):
        return changed
    if holders := mark.kinds_with_key(name):
        names = " and ".join(filter(None, (", ".join(holders[:-1]), holders[-1])))
        return f"{path}.{name} is a setting of kind {names}; {path}.kind is {kind}"
    own = list(mark.section(kind).model_fields)
    other_keys = [key for kind_name in mark.group.own_kinds() for key in mark.section(kind_name).model_fields]
    close = get_close_matches(name, [*own, *other_keys], n=1, cutoff=0.5)
    if not close:
        return f"there is no setting {path}.{name}; known are {', '.join(f'{path}.{key}' for key in own)}"
    of_another = "" if close[0] in own else f" It is one of kind {' and '.join(mark.kinds_with_key(close[0]))}."
    return f"there is no setting {path}.{name}; did you mean {path}.{close[0]}?{of_another}"


def merge(base: Mapping[str, Any], over: Mapping[str, Any], model: type[BaseModel] = Settings) -> dict[str, Any]:
    """Merge `over` into `base`: sections merge, values replace.

    If `over` changes the kind of a section, the settings of the former kind are dropped.
    """
    merged = dict(base)
    for name, value in over.items():
        field, before = model.model_fields.get(name), merged.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[name] = _merge_value(field, before, value)
        else:
            merged[name] = value
    return merged


def _merge_value(field: FieldInfo | None, before: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    mark = kind_of(field) if field else None
    if field is None or mark is None:
        return merge(before, over, (section_in(field) if field else None) or Section)
    if _is_section(field):
        return _merge_section(mark, before, over)
    both = {name for name in before if isinstance(before[name], Mapping) and isinstance(over.get(name), Mapping)}
    return {**before, **over, **{name: _merge_section(mark, before[name], over[name]) for name in both}}


def _merge_section(mark: OfKind, before: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    same = "kind" not in before or over.get("kind", before["kind"]) == before["kind"]
    return merge(
        {name: value for name, value in before.items() if same or name in mark.base.model_fields}, over, Section
    )


def without_former_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded values; in sections with a kind, without `REMOVED` keys and keys of other kinds.

    Older versions recorded both.
    """
    remaining = dict(values)
    for name, field in Settings.model_fields.items():
        mark = kind_of(field)
        if mark and _is_section(field) and isinstance(values.get(name), Mapping):
            remaining[name] = _own_values(mark, values[name], name)
    members = remaining.get("judge", {}).get("panel")
    if members:
        mark = kind_of(JudgeSettings.model_fields["panel"])
        assert mark is not None
        remaining["judge"] |= {"panel": [_own_values(mark, member, "judge") for member in members]}
    return remaining


def _own_values(mark: OfKind, values: Mapping[str, Any], section: str) -> dict[str, Any]:
    own = mark.section(mark.kind_in(values)).model_fields

    def is_former(name: str) -> bool:
        return f"{section}.{name}" in REMOVED or bool(mark.kinds_with_key(name))  # loads every kind: asked last

    return {name: value for name, value in values.items() if name in own or not is_former(name)}


def iterate_leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in nested sections, with its dotted key."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from iterate_leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
