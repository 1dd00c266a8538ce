"""Where secrets stand in a text; the whole mask is tested in `test_personal_data`."""

import pytest

from darklode.pipeline.base.secret_patterns import secret_spans

HEX = "9f86d081884c7d659a2feaa0c55ad015"


@pytest.mark.parametrize("secret", [f"ghs_{HEX}abcd", f"npm_{HEX}abcd", "AIzaSyA1234567890abcdefghijklmnopqrstuv"])
def test_a_key_is_found_by_its_prefix(secret: str) -> None:
    text = f"use {secret} here"
    assert any(secret in text[start:end] or text[start:end] in secret for start, end in secret_spans(text))


JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0=.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


@pytest.mark.parametrize("text", ["{}", "session-{}", "a?jwt={}&b", "Cookie: a_b-eyJ-{};", f"{'x-' * 40}{{}}"])
def test_a_web_token_is_found_within_a_word(text: str) -> None:
    written = text.format(JWT)
    assert any(written[start:end].endswith(JWT) for start, end in secret_spans(written))


@pytest.mark.parametrize("kind", ["", "proj-", "proj-a_b-"])
def test_a_key_of_openai_is_found(kind: str) -> None:
    key = f"sk-{kind}abcdefghijKLMNOPQRSTT3BlbkFJabcdefghijKLMNOPQRST"
    assert (5, 5 + len(key)) in secret_spans(f"with {key}")


@pytest.mark.parametrize("text", ["reset my password", "how do i rotate a token", "webhook signature mismatch"])
def test_words_about_secrets_are_no_secrets(text: str) -> None:
    assert not list(secret_spans(text))
