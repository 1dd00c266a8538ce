"""Renders the report as one self-contained HTML page.

The page is also well-formed XML. It has no script, and its Content-Security-Policy lets a browser load and run nothing,
so that even an unescaped untrusted text could do no harm.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.resources import files

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from darklode.pipeline.report.figure import FigureSection, FilledFigure, fill_figures
from darklode.pipeline.report.formatting import clean, first, number, short_id
from darklode.pipeline.report.passages import EXCERPT
from darklode.pipeline.report.source import ReportSource
from darklode.pipeline.report.summary import header

SECTION_MODULES = {
    "adapting": "adaptation",
    "model_swap": "model_swap",
    "distilling": "distillation",
    "laws": "laws",
    "encoder_swap": "encoder_swap",
    "generating": "generation",
    "triplets": "triplets",
    "overview": "overview",
    "queries": "queries",
    "pool": "pool",
    "judging": "verdicts",
    "positives": "positives",
    "people": "human_agreement",
    "validation": "validation",
    "audit": "audit",
    "evaluation": "evaluation",
    "mining": "mining",
    "cost": "cost",
}
"""Modules of the sections by key, in the order of the report; imported when they are needed."""


def load_sections(keys: Sequence[str] | None = None) -> list[FigureSection]:
    """The sections with some keys, in the order of the report; None: all sections."""
    package = "darklode.pipeline.report.sections"
    return [
        import_module(f"{package}.{module}").SECTION
        for key, module in SECTION_MODULES.items()
        if keys is None or key in keys
    ]


def filled_sections(
    source: ReportSource, keys: Sequence[str] | None = None
) -> Iterator[tuple[FigureSection, list[FilledFigure]]]:
    """The sections that have a figure for this run, with their figures; only those with the given keys, if any."""
    for section in load_sections(keys):
        figures = list(fill_figures(section.figures, source))
        if figures:
            yield section, figures


REPORT_FILE = "report.html"
TEMPLATES = files("darklode.pipeline.report").joinpath("templates")
STYLES = ("style.css", "texts.css")


def page(source: ReportSource, sections: Sequence[tuple[FigureSection, Sequence[FilledFigure]]] | None = None) -> bytes:
    """Render the report as UTF-8; the output is deterministic.

    Args:
        source: data of the run.
        sections: sections of the report with their figures; None: they are computed.
    """
    filled = list(filled_sections(source)) if sections is None else sections
    titles = {figure.figure.key: section.title for section, figures in filled for figure in figures}
    return render_page("page.html", (), head=header(source), sections=filled, section_titles=titles, beginning=EXCERPT)


def render_page(template: str, styles: Sequence[str], **values: object) -> bytes:
    """Render a template that extends `document.html` as UTF-8.

    Args:
        template: a file in `templates/`.
        styles: style sheets in `templates/`, after those of all pages.
        values: variables of the template.
    """
    style = "".join(TEMPLATES.joinpath(file).read_text("utf-8") for file in (*STYLES, *styles))
    page_template = _environment().get_template(template)
    return page_template.render(values, style=style, style_hash=policy_hash(style)).encode()


def _environment() -> Environment:
    """Jinja environment; an undefined variable is an error, and all values are escaped."""
    environment = Environment(
        loader=PackageLoader("darklode.pipeline.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    environment.globals["is_number"] = _is_number
    environment.filters |= {"number": number, "first": first, "short_id": short_id}
    return environment


def _finalize(value: object) -> object:
    """Replace characters that HTML does not allow."""
    return clean(value) if type(value) is str else value


def _is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers, which are aligned to the right."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def policy_hash(text: str) -> str:
    """Base64 SHA-256 of an inline style sheet or script, for a Content-Security-Policy."""
    return b64encode(sha256(text.encode()).digest()).decode()
