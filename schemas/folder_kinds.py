"""Kinds of folders that commands make. The module imports nothing, because `darklode list` must start fast."""

INPUTS = "inputs.json"
"""File with the kind of a folder and what it was made from; `run_inputs` has a model of it per kind."""

RUN_KINDS = frozenset({"benchmark", "mined"})
"""Runs; their last stage is the funnel."""
ADAPTER_KINDS = frozenset({"adapter", "model-swap", "tenant-adapters", "comparison"})
"""Folders that `darklode adapt` makes."""
ENCODER_KINDS = ADAPTER_KINDS | {"towers"}
"""Folders with an encoder trained on runs."""
