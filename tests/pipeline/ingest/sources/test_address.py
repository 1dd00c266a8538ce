"""Addresses of sources, and secrets in them."""

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.sources.address import address_kind, check_source

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("docs/", None),
        ("/a/b:c", None),
        ("C:/docs", None),
        ("gs://bucket/docs", None),
        ("s3://bucket/docs", "objects"),
        ("hf://datasets/acme/docs", "hub"),
        ("opensearch+https://host:9200/docs", "engine"),
        ("elasticsearch+http://host/docs", "engine"),
        ("postgres://host/db?table=docs", "database"),
        ("postgresql+asyncpg://user@host/db", "database"),
        ("sqlite:///shop.db?table=docs", "database"),
        ("DuckDB:///shop.duckdb?table=docs", "database"),
    ],
)
def test_kinds(path: str, kind: str | None) -> None:
    assert address_kind(path) == kind


@pytest.mark.parametrize(
    "path",
    [
        f"postgresql://user:{SECRET}@host/db?table=docs",
        f"postgresql://user:{SECRET}/x@host/db?table=docs",
        f"postgresql://user@host/db?table=docs&password={SECRET}",
        f"mysql://user@host/db?PASSWD={SECRET}",
        f"postgresql://user@host/db?sslpassword={SECRET}",
        f"duckdb:///shop.duckdb?motherduck_token={SECRET}",
        f"mssql+pyodbc://?odbc_connect=Driver%3DX%3BPWD%3D{SECRET}",
        f"opensearch+https://{SECRET}@host/docs",
        f"elasticsearch+https://host/docs?api_key={SECRET}",
    ],
)
def test_a_secret_is_refused_and_not_repeated(path: str) -> None:
    with pytest.raises(InputError, match="must not contain a password") as caught:
        check_source(path)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "postgresql://user@host:5432/db?table=docs&password_env=SHOP_PASSWORD",
        "opensearch+https://[::1]:9200/docs?api_key_env=SHOP_KEY",
        "sqlite:////data/shop.db?table=docs",
        "mysql+pymysql://user@host/db?table=tokens&ssl_key=client.pem",
        "hf://datasets/acme/docs@v1/data/*.parquet",
    ],
)
def test_other_addresses_are_accepted(path: str) -> None:
    check_source(path)
