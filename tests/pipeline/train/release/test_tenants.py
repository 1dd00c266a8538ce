"""Where each tenant's adapter lies; what comes of tenants is tested in tests/flows/jobs/test_adapt_tenants.py."""

from darklode.pipeline.train.release.tenants import tenant_folder


def test_a_name_is_one_folders() -> None:
    names = ["a", "a/b", "..", ".", "a%2Fb", "ä b"]
    places = [tenant_folder(name).removeprefix("tenants/") for name in names]
    assert len(set(places)) == len(names)
    assert not [place for place in places if "/" in place or "." in place]
