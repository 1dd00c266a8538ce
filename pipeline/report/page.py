"""The report as one HTML page that needs nothing but itself.

The page is well-formed XML too, holds no script, and its policy lets a browser load and run nothing: even a text from
outside that were not escaped could do no harm.
"""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from pipeline.report.contents import shown_sections
from pipeline.report.figure import Section, Shown
from pipeline.report.header import header
from pipeline.report.numbers import clean, first, number
from pipeline.report.source import Source

FILE = "report.html"
TEMPLATES = files("pipeline.report").joinpath("templates")
BEGINNING = 260
"""Characters of a text that are shown before its reader asks for more."""


def page(source: Source, sections: Sequence[tuple[Section, Sequence[Shown]]] | None = None) -> bytes:
    """The run's report as UTF-8; the same tables, manifests and settings give the same bytes.

    Args:
        source: the run.
        sections: its figures, where they are at hand.
    """
    style = TEMPLATES.joinpath("style.css").read_text("utf-8")
    shown = list(shown_sections(source)) if sections is None else sections
    text = (
        _environment()
        .get_template("page.html")
        .render(head=header(source), sections=shown, style=style, style_hash=_hash(style), beginning=BEGINNING)
    )
    return text.encode()


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_plain,
    )
    environment.globals["is_number"] = _is_number
    environment.filters |= {"number": number, "first": first}
    return environment


def _plain(value: object) -> object:
    """What the page prints: texts without what no page can hold."""
    return clean(value) if type(value) is str else value


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _hash(style: str) -> str:
    return b64encode(sha256(style.encode()).digest()).decode()
