"""Shapes of HTML pages, with the words that a reader has to keep and those that are navigation.

Each sentence of content holds a word `keep…`, each entry of navigation a word `drop…`.
"""

# ruff: noqa: E501 (a page reads best in one line)

from itertools import count

_SUBJECTS = (
    "The invoice", "A webhook", "Your workspace", "The export job", "An administrator", "The billing address",
    "A failed payment", "The audit log", "Each connector", "The retention policy",
)  # fmt: skip
_PREDICATES = (
    "is sent on the first working day of the month and can be downloaded as a file",
    "retries for three days before it gives up, and every attempt is recorded",
    "can be renamed by its owner at any time without breaking the links that point to it",
    "needs the permission to read the project, which the owner grants in the settings",
    "stays available for ninety days after the contract ends, then it is deleted for good",
)


class _Writer:
    """Makes sentences and links whose words are counted."""

    def __init__(self) -> None:
        self._numbers = count()

    def say(self, how_many: int = 1) -> str:
        """Sentences of content."""
        numbers = [next(self._numbers) for _ in range(how_many)]
        return " ".join(f"{_SUBJECTS[n % 10]} {_PREDICATES[n % 5]} (keep{n})." for n in numbers)

    def p(self, how_many: int = 2) -> str:
        """A paragraph of content."""
        return f"<p>{self.say(how_many)}</p>"

    def h(self, level: int = 2) -> str:
        """A heading that is content."""
        return f"<h{level}>How does it work, keep{next(self._numbers)}?</h{level}>"

    def word(self) -> str:
        """A word of content."""
        return f"keep{next(self._numbers)}"

    def links(self, how_many: int = 4) -> str:
        """A list of links of navigation."""
        items = "".join(f"<li><a href='/{n}'>Products drop{next(self._numbers)}</a></li>" for n in range(how_many))
        return f"<ul>{items}</ul>"

    def chrome(self) -> str:
        """A word of navigation."""
        return f"drop{next(self._numbers)}"


def _wrap(body: str, title: str = "Help centre") -> str:
    return f"<!doctype html><html><head><title>{title}</title></head><body>{body}</body></html>"


def _semantic(w: _Writer) -> dict[str, str]:
    nav, foot = f"<nav>{w.links()}</nav>", f"<footer><p>All rights reserved {w.chrome()}</p></footer>"
    faq = [f"<article><header>{w.h()}</header>{w.p()}</article>" for _ in range(5)]
    return {
        "main": f"<header>Logo {w.chrome()}</header>{nav}<main>{w.h(1)}{w.p()}{w.p()}</main>{foot}",
        "two mains": f"{nav}<main>{w.p()}</main><main hidden>{w.p()}</main>",
        "role main": f"{nav}<div role='main'>{w.h(1)}{w.p()}</div>{foot}",
        "main in main": f"<div role=main><main>{w.p()}</main>{w.p()}</div>{foot}",
        "faq of five articles": f"{nav}{w.h(1)}{''.join(faq)}{foot}",
        "faq in main": f"{nav}<main>{''.join(f'<article><header>{w.h()}</header>{w.p()}</article>' for _ in range(3))}</main>",
        "one article": f"{nav}<article>{w.h(1)}{w.p()}</article>{foot}",
        "text around an article": f"{w.p()}<article>{w.p()}</article>{w.p()}",
        "header with the title": f"<header>{w.h(1)}<p>{w.say()}</p><nav>{w.links()}</nav></header>{w.p()}{foot}",
        "header of main": f"{nav}<main><header>{w.h(1)}<p>{w.say()}</p></header>{w.p()}<footer>{w.say()}</footer></main>",
        "footer of an article": f"<article>{w.p()}<footer><p>{w.say()}</p></footer></article>{foot}",
        "note in main": f"{nav}<main>{w.p()}<aside class='note'>{w.p(1)}</aside>{w.p()}</main>",
        "aside of prose": f"<h1>Guide</h1>{w.p()}<aside>{w.p()}</aside>",
        "aside of links": f"{w.p()}{w.p()}<aside><h3>Related {w.chrome()}</h3>{w.links(6)}</aside>",
        "aside of an article": f"<article>{w.p()}<aside>{w.p(1)}</aside></article>",
        "footnotes": f"{w.p()}<aside role='doc-endnotes'><ol><li>{w.say()} <a href='#r'>↩</a></li></ol></aside>",
        "table of contents": f"<main><nav class='toc'>{w.links()}</nav>{w.h()}{w.p()}</main>",
        "nav of prose": f"<main><nav>{w.p()}</nav>{w.p()}</main>",
        "sections": f"{nav}<section>{w.h()}{w.p()}</section><section><header>{w.h()}</header>{w.p()}</section>{foot}",
        "roles": f"<div role=banner>Acme {w.chrome()}</div><div role=navigation>{w.links()}</div>{w.p()}"
        f"<div role=search>Find {w.chrome()}</div><div role=contentinfo>© {w.chrome()}</div>",
        "small main": f"<main><p>{w.word()}</p></main><section>{w.p(4)}</section><section>{w.p(4)}</section>",
        "empty main": f"{nav}<main></main><div>{w.p()}</div>",
    }


def _forms_and_tables(w: _Writer) -> dict[str, str]:
    rows = "".join(f"<tr><td>{w.word()}</td><td>{w.say()}</td></tr>" for _ in range(4))
    hidden = "<input type=hidden name=__VIEWSTATE value='dDwtMTA4'>"
    return {
        "page within a form": f"<form id=aspnetForm>{hidden}<nav>{w.links()}</nav><div>{w.h(1)}{w.p()}{w.p()}</div></form>",
        "main within a form": f"<form>{hidden}<header>Login {w.chrome()}</header><main>{w.p()}</main></form>",
        "form in main": f"<main>{w.p()}<form><label>{w.word()} <input name=a></label><p>{w.say()}</p></form></main>",
        "fieldset": f"<form><fieldset><legend>{w.word()}</legend>{w.p()}</fieldset></form>",
        "options": f"{w.p()}<select><option>Germany {w.chrome()}<option>France {w.chrome()}</select>{w.p()}",
        "button as question": f"<h2><button aria-expanded=false>{w.word()} keeps?</button></h2><div hidden>{w.p()}</div>",
        "textarea": f"{w.p()}<textarea>curl {w.word()}</textarea>",
        "table": f"<table><thead><tr><th>Field<th>Meaning</thead>{rows}</table>",
        "layout by table": f"<table><tr><td class='menu'>{w.links()}</td><td>{w.h(1)}{w.p()}{w.p()}</td></tr></table>",
        "table caption": f"<table><caption>{w.word()}</caption><tr><td>{w.word()}</td></tr></table>",
        "definitions": f"<dl><dt>{w.word()}</dt><dd>{w.say()}</dd><dt>{w.word()}</dt><dd>{w.say()}</dd></dl>",
        "details": f"<details><summary>{w.word()}</summary>{w.p()}</details><details><summary>{w.word()}</summary>{w.p()}</details>",
    }


def _blocks(w: _Writer) -> dict[str, str]:
    deep = "<div>" * 40 + w.p() + "</div>" * 40
    nested = f"<ul><li>{w.word()}<ul><li>{w.word()}<ol><li>{w.word()}<li>{w.word()}</ol></ul><li>{w.word()}</ul>"
    return {
        "divs": f"<div id=nav>{w.links()}</div><div id=content>{w.h(1)}{w.p()}{w.p()}</div><div id=footer>{w.links(2)}</div>",
        "sidebar": f"<div class='page'><div class='left-sidebar'>{w.links(8)}</div><div class='body'>{w.p()}{w.p()}</div></div>",
        "breadcrumbs": f"<ol class='breadcrumb'><li><a href=/>{w.chrome()}</a><li><a href=/a>{w.chrome()}</a></ol>{w.p()}",
        "menu of dishes": f"<div class='menu'>{w.h()}<p>{w.say()}</p><p>{w.say()}</p></div>",
        "list of links as content": f"{w.h(1)}<ul><li><a href=/1>{w.say()}</a><li><a href=/2>{w.say()}</a></ul>",
        "links only": f"<nav><ul><li><a href=/a>{w.say()}</a><li><a href=/b>{w.say()}</a></ul></nav>",
        "bare text": f"{w.say()}<br>{w.say()}<hr>{w.say()}",
        "deep divs": deep,
        "nested lists": nested,
        "code": f"{w.p()}<pre><code>GET /v1/{w.word()}\nAccept: {w.word()}</code></pre>{w.p()}",
        "quote": f"<article><blockquote><p>{w.say()}</p><footer>{w.say()}</footer></blockquote>{w.p()}</article>",
        "figure": f"{w.p()}<figure><img src=a.png alt='chart'><figcaption>{w.say()}</figcaption></figure>",
        "tabs": f"<div role=tablist><button>{w.word()}</button></div><div role=tabpanel hidden>{w.p()}</div>",
        "unclosed": f"<p>{w.say()}<p>{w.say()}<div><b>{w.say()}<i>{w.say()}",
        "comments and scripts": f"<!-- secret --><script>var x = 'y'</script><style>p {{}}</style>{w.p()}<noscript>{w.p(1)}</noscript>",
        "custom elements": f"<my-app><x-panel>{w.p()}</x-panel><x-panel>{w.p()}</x-panel></my-app>",
    }


def _layouts(w: _Writer) -> dict[str, str]:
    """Wrappers of content that are named as the navigation beside it."""
    toc = f"<nav class='wy-nav-side'>{w.links(60)}</nav>"
    section = "<section class='wy-nav-content-wrap'><nav class='wy-nav-top'>Docs</nav>"
    menu = "<div class='menu-wrapper'><div class='menu'>"
    return {
        "Read the Docs": f"<div class='wy-grid-for-nav'>{toc}{section}<div role=main>{w.h(1)}{w.p(4)}</div></section></div>"
        f"<div class='rst-versions'>Read the Docs v: latest {w.chrome()}</div>",
        "has-sidebar": f"<div class='layout has-sidebar'>{w.h(1)}<ul class='sidebar'>{w.links(20)}</ul></div><p>(c) 2024 {w.word()}</p>",
        "menu-wrapper": f"{menu}{w.links(20)}</div><div>{w.p()}</div></div><p>(c) 2024 {w.word()}</p>",
        "article beside a menu": f"<div class='with-menu'><ul class='menu'>{w.links(40)}</ul><article>{w.p()}</article></div>{w.p(3)}",
        "main in a header": f"<header class='page'><main>{w.p()}</main></header>",
    }


def pages() -> dict[str, str]:
    """The pages, by the name of their shape."""
    writer = _Writer()
    bodies = _semantic(writer) | _forms_and_tables(writer) | _blocks(writer) | _layouts(writer)
    return {name: _wrap(body) for name, body in bodies.items()}
