"""Optional packages that adaptation methods need, checked before anything heavy is imported."""

from importlib.util import find_spec

from darklode.pipeline.base.errors import MissingPart

INSTALL_COMMAND = 'pip install "darklode[train]"'

BASE_PACKAGES = ("torch", "sentence_transformers")
PACKAGES_BY_METHOD = {
    "lora": (*BASE_PACKAGES, "accelerate", "datasets", "peft"),
    "full": (*BASE_PACKAGES, "accelerate", "datasets"),
    "top_n": (*BASE_PACKAGES, "accelerate", "datasets"),
    "joint": (*BASE_PACKAGES, "accelerate", "datasets"),
}


def check_parts(method: str) -> None:
    """Check that a method's packages are installed.

    Raises:
        MissingPart: one is missing.
    """
    if missing := missing_packages(method):
        raise MissingPart(f"adapt.method {method} needs {' and '.join(missing)}: {INSTALL_COMMAND}")


def missing_packages(method: str) -> list[str]:
    """Packages that a method needs and that are not installed."""
    return [name for name in PACKAGES_BY_METHOD.get(method, BASE_PACKAGES) if find_spec(name) is None]
