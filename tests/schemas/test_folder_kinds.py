from typing import get_args

from darklode.schemas.folder_kinds import ADAPTER_KINDS, ENCODER_KINDS, RUN_KINDS
from darklode.schemas.run_inputs import FolderInputs, Inputs, TrainedInputs

MODELS: tuple[type[FolderInputs], ...] = get_args(Inputs)


def test_kinds_are_those_of_the_models() -> None:
    assert {model.kind_name() for model in MODELS if issubclass(model, TrainedInputs)} == ENCODER_KINDS
    adapt = {model.kind_name() for model in MODELS if model.command.startswith("darklode adapt")}
    assert adapt == ADAPTER_KINDS
    assert {model.kind_name() for model in MODELS if "pages" in model.state} == RUN_KINDS


def test_paths_are_fields_of_the_models() -> None:
    assert all(set(model.paths) <= set(model.model_fields) for model in MODELS)
