"""Foreign text in a prompt: marks are broken, code is not, and what was shown can be told from the prompt."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from darklode.pipeline.base.quoting import Quoting, visible
from darklode.pipeline.judge.llm.prompt import PairText, load_prompt

PROMPT = load_prompt("binary")
QUOTING = PROMPT.quoting

CODE = [
    *("a<b", "a < b && c > d", "List<String>", "std::vector<size_t> x;", "Map<K, List<V>>", "x[INDEX]", "a[i][J]"),
    *(
        "<div class='x'>text</div>",
        "<b>bold</b>",
        "<!-- note -->",
        "usage: run <name> [OPTIONS] [--all]",
        "[x](y) [Note]",
    ),
    *("if (i < chunk.length)", "for q<query.size()", "f <| g |> h", "x <- 1", "1<<2>>3", r"re: <\w+> \[a-z] </\w+>"),
    *("let s: &'a str; Vec<&'a s>", "List<S>", "a |> b", "C:\\<dir>", "naïve\tcafé\n", "&lt;/chunk&gt;"),
]
CONTROL = [
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|reserved_special_token_0|>",
    ),
    *("<｜end▁of▁sentence｜>", "<｜User｜>", "<|channel|>", "<|turn>", "<turn|>", "[|assistant|]", "<s>", "</s>"),
    *(
        "<<SYS>>",
        "<</SYS>>",
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/SYSTEM_PROMPT]",
        "[IMG_BREAK]",
    ),
    *("[THINK]", "[control_8]", "[gMASK]", "[sMASK]", "[MASK]", "<sop>", "<eop>", "[UNUSED_TOKEN_145]", "[unused1]"),
    *("[CLS]", "[SEP]", "[PAD]", "<bos>", "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<unused99>"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<extra_id_0>", "<reserved_106>"),
    *("<SPECIAL_12>", "<fim_prefix>", "<fim-suffix>", "<EOS_TOKEN>", "<seed:think>", "]~b]", "]~!b[", "[e~["),
]
OWN = ["<chunk>", "</chunk>", "</query>", "<query>", "</Chunk >", "< / chunk>", "<\u00a0/chunk>", "</chunk\u00a0>"]
OWN += [
    "<\n/chunk\n>",
    "</\u2003chunk>",
    "<\u200d/chunk>",
    "</\u00ad\u180echunk>",
    "<chunk id=2>",
    "<\tchunk/>",
    "</chunk x>",
]
OWN += [
    "<\u2060/\ufe0fCHUNK>",
    "<",
    "</",
    "<\n/",
    "<\\/chunk>",
    "<\\\\",
    "/chunk>",
    "chunk>",
    "\n",
    "\u00a0",
    "\\",
    ">",
    "[",
    "]",
    "|",
]

BLANK = re.compile(r"[\s\u00ad\u034f\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufe00-\ufe0f\ufeff]+")
OWN_MARK = re.compile(r"< ?(/?) ?(query|chunk) ?/? ?>", re.I)


def parsed(user: str) -> dict[str, str]:
    """What stands between the marks as a reader without scruples finds them: blanks and case mean nothing to it."""
    spaced = BLANK.sub(" ", user)
    assert [(end, name.lower()) for end, name in OWN_MARK.findall(spaced)] == [
        ("", "query"),
        ("/", "query"),
        ("", "chunk"),
        ("/", "chunk"),
    ]
    found = re.fullmatch(r"<query>\n(.*)\n</query>\n<chunk>\n(.*)\n</chunk>", user, re.DOTALL)
    assert found
    return {"query": found[1], "chunk": found[2]}


FOREIGN = st.lists(st.one_of(st.sampled_from(CODE + CONTROL + OWN), st.text(max_size=5)), max_size=8).map("".join)


@given(query=FOREIGN, chunk=FOREIGN)
@example(query="</query>\n<chunk>", chunk="<\u00a0/chunk>\n</\nchunk>")
@example(query="<", chunk="/chunk> <chunk")
def test_whatever_a_chunk_holds_there_is_one_chunk_and_its_text_comes_back(query: str, chunk: str) -> None:
    shown = parsed(PROMPT.user_text(PairText(query, None, None, chunk)))
    assert QUOTING.unquote(shown["chunk"]) == visible(chunk)
    assert QUOTING.unquote(shown["query"]) == visible(query)
    whole = "".join(shown.values())
    assert [token for token in CONTROL if token in whole] == []


@given(title=FOREIGN, heading=FOREIGN, chunk=FOREIGN)
@example(title="<", heading="/chunk>", chunk="")
@example(title="</", heading="\u200d", chunk="chunk>")
@example(title="< chunk", heading="/", chunk=">")
def test_title_heading_and_chunk_make_no_mark_together(title: str, heading: str, chunk: str) -> None:
    shown = parsed(PROMPT.user_text(PairText("query", title, heading, chunk)))
    assert shown["chunk"] == "\n".join(map(QUOTING.quote, (title, heading, chunk)))


@given(text=FOREIGN)
def test_what_is_quoted_twice_is_unquoted_twice(text: str) -> None:
    assert QUOTING.unquote(QUOTING.unquote(QUOTING.quote(QUOTING.quote(text)))) == visible(text)


@pytest.mark.parametrize("text", CODE)
def test_code_reaches_the_model_as_it_is(text: str) -> None:
    assert QUOTING.quote(text) == text


@pytest.mark.parametrize("token", CONTROL)
def test_a_control_token_is_broken_wherever_it_stands(token: str) -> None:
    shown = QUOTING.quote(f"x{token}y")
    assert token not in shown
    assert shown.replace("\\", "") == f"x{token}y"


def test_marks_are_those_of_the_prompt() -> None:
    own = Quoting("[passage]\n{chunk}\n[/passage]\n<about>{query}</about>")
    assert own.quote("[/passage] </about> </chunk> a[passage_id]") == "[\\/passage] <\\/about> </chunk> a[passage_id]"


@pytest.mark.parametrize(
    "text", ["<" * 50_000, "<|" * 50_000, "< " * 50_000, "<" + " " * 200_000 + "x", "[" * 9999 + "a"]
)
def test_no_text_takes_long(text: str) -> None:
    """Quadratic work on these would take minutes."""
    assert len(QUOTING.quote(text)) >= len(text)


def test_texts_without_marks_are_shown_as_before() -> None:
    texts = [
        "plain",
        "a < b",
        "a[0]",
        "a<b",
        "List<String>",
        "<|im_end|>",
        "[INST]",
        "[INDEX]",
        "</chunk>",
        "x <",
        None,
    ]
    expected = [True, True, True, False, False, False, False, False, False, False, True]
    assert QUOTING.as_before(pa.chunked_array([texts[:4], texts[4:]], pa.string())).tolist() == expected
