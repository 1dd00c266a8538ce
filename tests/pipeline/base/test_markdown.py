"""Markdown as blocks of styled text, also where it is plain text or hostile."""

import random
import time
from itertools import chain

import pytest

from darklode.pipeline.base.markdown import MarkdownBlock, parse_blocks, parse_inline
from darklode.pipeline.base.terms import words
from helpers.hostile import TOKENS

TEXT = """# Keys

Rotate **every** key with `darklode`, see [the guide](https://x.test/a_b?c=<d>&e "All").
Next <b>line</b>.

- one
- two
  1. inner
3) three

> said
> so

| name | what |
|:-----|-----:|
| a \\| b | *yes* | more |

## Code
```sh
rotate  # *now*
```
***
    indented
"""


@pytest.mark.parametrize("line", ["```npm install acme```", "``` npm ``` and more", "```` ```a``` ````", "  ```a`"])
def test_a_line_of_inline_code_is_no_fence(line: str) -> None:
    blocks = parse_blocks(f"Run\n\n{line}\n\n## Then\n\n```sh\nacme `now`\n{line}\n```\n\nend")
    assert [block.kind for block in blocks] == ["prose", "prose", "heading", "fixed", "prose"]
    assert text_of(blocks[3:4]) == f"acme `now`\n{line}"
    assert set(words(line)) <= set(words(text_of(blocks[1:2])))


def runs_of(block: MarkdownBlock) -> list[tuple[str, tuple[str, ...]]]:
    return [(run.text, run.styles) for run in block.runs]


def text_of(blocks: list[MarkdownBlock]) -> str:
    cells = ("".join(run.text for run in runs) for block in blocks for runs in (block.runs, *chain(*block.rows)))
    return "\n".join(cells)


def test_blocks() -> None:
    blocks = parse_blocks(TEXT)
    assert [(block.kind, block.level, block.sign) for block in blocks] == [
        ("heading", 1, ""),
        ("prose", 0, ""),
        ("bullet", 1, "•"),
        ("bullet", 1, "•"),
        ("bullet", 2, "1."),
        ("bullet", 1, "3)"),
        ("quotation", 1, ""),
        ("table", 0, ""),
        ("heading", 2, ""),
        ("fixed", 0, ""),
        ("rule", 0, ""),
        ("fixed", 0, ""),
    ]
    assert runs_of(blocks[1]) == [
        ("Rotate ", ()),
        ("every", ("strong",)),
        (" key with ", ()),
        ("darklode", ("code",)),
        (", see ", ()),
        ("the guide", ()),
        (" (https://x.test/a_b?c=<d>&e “All”)", ("small",)),
        (".", ()),
        ("\n", ()),
        ("Next <b>line</b>.", ()),
    ]
    cells = [["".join(run.text for run in cell) for cell in row] for row in blocks[7].rows]
    assert cells == [["name", "what", ""], ["a | b", "yes", "more"]]
    assert runs_of(blocks[9]) == [("rotate  # *now*", ())]


@pytest.mark.parametrize(
    "text",
    [
        "a*b*c and f(a*b, c*d)",
        "2 * 3 * 4",
        "/*comment*/",
        "2**8**2",
        "*args, **kwargs",
        "my_file_name and __init__.py",
        "#hashtag",
        "# install it\npip install it",
        "C:\\users\\new",
        "| a | b\n| c | d",
        "<div onclick='x'>&</div>",
        "[x](javascript:alert(1))",
        "[a]: https://x.test",
        "Title\n=====",
    ],
)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert text_of(parse_blocks(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"), [("这是**粗体**字", ["这是", "粗体", "字"]), ("snake\\_case", ["snake", "_", "case"])]
)
def test_inline(text: str, expected: list[str]) -> None:
    assert [run.text for run in parse_inline(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<https://x.test/a>", ["https://x.test/a"]),
        ("![a map](map.png)", ["a map", " (map.png)"]),
        ("[**b**](c)", ["b", " (c)"]),
        ("[](c)", [" (c)"]),
    ],
)
def test_addresses_are_text(text: str, expected: list[str]) -> None:
    assert [run.text for run in parse_inline(text)] == expected


HOSTILE = (
    *TOKENS["md"], *TOKENS["html"],
    "[", "](", "[a](", "![", "**", "*a ", "_", "`", "> ", "- ", "1. ", "    ", "| a |\n",
    "|-|\n", "# a\n", "\n  ", "~~~\n",
)  # fmt: skip


def test_no_word_of_a_hostile_text_is_lost() -> None:
    dice = random.Random(4)
    for _ in range(400):
        few = dice.choices(HOSTILE, k=dice.randint(2, 12))
        text = "".join(part + dice.choice(("", " ", "\n", " one ")) for part in few).replace("&", "").replace("\\", "")
        text = text.replace("```", "").replace("~~~", "")  # the kind of code beside a fence is not shown
        shown = set(words(text_of(parse_blocks(text)))) | {word for b in parse_blocks(text) for word in words(b.sign)}
        assert set(words(text.replace("\0", "\ufffd"))) <= shown, text


@pytest.mark.parametrize(
    "text",
    [
        "![![](",
        "[](![",
        "[",
        "**a*",
        "> - ",
        "- a\n\n  ",
        "# a\n* ",
        "`a``",
        "|-|\n",
        "<a ",
        "|-|",
        "| ",
        "|-    ",
        "\\|",
    ],
)
def test_time_is_bounded(text: str) -> None:
    """Also where many paragraphs are as long as is read."""
    began = time.process_time()
    parse_blocks((text * 40_000)[:40_000])
    parse_blocks("| a |\n|-" + (text.replace("\n", "") * 40_000)[:40_000] + "x")
    parse_blocks("\n\n".join([(text * 3_000)[:2_900]] * 3))
    assert time.process_time() - began < 3
