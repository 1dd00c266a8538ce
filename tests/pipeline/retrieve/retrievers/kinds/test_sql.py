"""The kind `sql`: what is wrong with its settings is said before anything is asked."""

from typing import Any

import pytest
from pydantic import ValidationError

from darklode.pipeline.retrieve.retrievers.kinds.sql import KIND

STATEMENT = "SELECT id, score::real FROM search(:query) LIMIT :k"


def kind(**settings: Any) -> KIND:
    return KIND.model_validate({"dsn": "postgresql://host/shop", "statement": STATEMENT} | settings)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("SELECT id FROM docs WHERE body = :query", "statement has no :k"),
        ("SELECT id::query FROM docs LIMIT :k", "statement has no :query"),
        ("SELECT id FROM docs", "statement has no :query and :k"),
    ],
)
def test_a_statement_needs_its_parameters(statement: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        kind(statement=statement)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"dsn": "postgresql://me:s3cret@host/shop"}, "dsn must not contain a password"),
        ({"dsn": "postgresql://host/shop?password=s3cret"}, "dsn must not contain a password"),
        ({"dsn": "host"}, "dsn must be a URL such as postgresql://"),
        ({"dsn": "mysql://host/shop"}, "needs an asynchronous driver"),
        ({"dsn": "mysql+nodriver://host/shop"}, "pip install nodriver"),
        ({"password_env": "SHOP_PASSWORD"}, "set the environment variable SHOP_PASSWORD"),
    ],
)
def test_what_is_missing_is_a_phrase_without_secrets(settings: dict[str, Any], problem: str) -> None:
    (found,) = kind(**settings).missing()
    assert problem in found
    assert "s3cret" not in found


def test_a_statement_depends_on_the_tenant_if_it_names_it() -> None:
    assert not kind().uses_tenant
    assert kind(statement=f"{STATEMENT} -- :tenant").uses_tenant
    assert kind(timeout=1, password_env="X").identity == kind().identity
    assert kind(dsn="sqlite:////tmp/docs.db").address() == "sqlite+aiosqlite:////tmp/docs.db"
