"""Optional packages that adaptation methods need, checked before anything heavy is imported."""

from importlib.util import find_spec

from darklode.pipeline.base.errors import MissingPart

INSTALL = 'pip install "darklode[train]"'

ALL = ("torch", "sentence_transformers")
NEEDS = {
    "lora": (*ALL, "accelerate", "datasets", "peft"),
    "full": (*ALL, "accelerate", "datasets"),
    "top_n": (*ALL, "accelerate", "datasets"),
    "joint": (*ALL, "accelerate", "datasets"),
}


def check_parts(method: str) -> None:
    """Check that a method's packages are installed.

    Raises:
        MissingPart: one is missing.
    """
    missing = [name for name in NEEDS.get(method, ALL) if find_spec(name) is None]
    if missing:
        raise MissingPart(f"adapt.method {method} needs {' and '.join(missing)}: {INSTALL}")
