"""nightly-adapt: mine the new days, adapt with what is live as the beginning, and release behind the gate."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from darklode.flows import open_systems
from darklode.flows.config import load_settings, read_project
from darklode.flows.jobs.adapt_encoder import adapt_encoder
from darklode.flows.jobs.adapt_tenants import adapt_tenants
from darklode.flows.jobs.mine_logs import mine_logs
from darklode.flows.paths import Place
from darklode.flows.prefect.progress import reporter
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError, DoesNotFit, HeldBack, NoLift, SettingsError
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.warm_start import require_head_method

ADAPTED = "SELECT folder FROM adapted_tenants WHERE shipped = 'adapted' ORDER BY tenant"


def nightly_adapt(  # noqa: PLR0913 (they are the form in which Prefect asks for a run)
    encoder: str,
    out: Place,
    registry: Place,
    logs: Place | None = None,
    docs: Place | None = None,
    mined: Place | None = None,
    *,
    tenants: list[str] | None = None,
    share_with: list[str] | None = None,
    test_days: int = 7,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    config: Place | None = None,
) -> str:
    """Mine, adapt and release, one after the other; what one of them holds back is told when all is done.

    Killed at any moment and run again it ends as if it had not been. What was released once is not released again, so
    that an adapter that somebody rolled back stays away.

    Args:
        encoder: a name among the settings' encoders, or a sentence-transformers model.
        out: folder or s3:// prefix of the adapted encoder, or of all tenants' heads.
        registry: keeps what is released; training begins with what is live there, on the first night with the base.
        logs: file, folder or s3:// prefix of search logs; by default the config's.
        docs: file or folder of documents, likewise.
        mined: folder or s3:// prefix of the mined run, likewise.
        tenants: a head for each of these, or of `all`; None: one adapter, of `adapt.tenant`.
        share_with: guard tenants, for whom the adapter goes live, too, if none falls; not with `tenants`.
        test_days: so many days at the end of the log are the test; nothing is learned from them yet.
        preset: where the settings start from.
        settings: what differs from preset and config, as nested sections.
        config: settings file with paths, as `darklode init` writes it, on the machine that works.

    Returns:
        What went live, or that nothing was to.

    Raises:
        HeldBack: a day of the log is held back; everything else is done.
        NoLift: no lift is shown, or a tenant would fall: what was live stays so.
        DoesNotFit: an adapter is not for the index.
        SettingsError: `tenants` and `share_with` together, or a method that cannot begin with what is live.
    """
    if tenants and share_with:
        raise SettingsError("each of the tenants has a head of its own: nothing is shared with others")
    config_file = read_project(config, preset)
    run, refused = config_file.place("mined", mined), list[DarklodeError]()
    require_head_method(load_settings(config_file.preset, config, values=settings).adapt.method)
    with _collect_refusals(refused):
        mine_logs(logs, docs, run, test_days=test_days, preset=preset, settings=settings, config=config)
    for adapter in _adapt_tenants(run, encoder, out, registry, tenants, refused):
        if Adapter.open(adapter).id in AdapterRegistry(registry).adapters:
            continue
        with _collect_refusals(refused):
            reporter().say(open_systems.release(adapter, run, registry, share_with or ()))
    if refused:
        raise combine_errors(refused)
    return format_summary(registry)


def _adapt_tenants(
    run: str, encoder: str, out: str, registry: str, tenants: list[str] | None, refused: list[DarklodeError]
) -> list[str]:
    """Folders of what is to be released."""
    folders = list[str]()
    with _collect_refusals(refused):
        if tenants:
            tenant_names = () if tenants == [open_systems.ALL] else tuple(tenants)
            adapt_tenants([run], encoder, out, tenant_names, warm_start=registry)
            folders = Run(out).tables("adapted_tenants").sql(ADAPTED)["folder"].to_pylist()
            folders = [f"{out}/{folder}" for folder in folders]
        else:
            adapt_encoder([run], encoder, out, warm_start=registry)
            folders = [out]
    return folders


@contextmanager
def _collect_refusals(refused: list[DarklodeError]) -> Iterator[None]:
    """What is held back keeps nothing else from being done."""
    try:
        yield
    except (HeldBack, NoLift, DoesNotFit) as error:
        refused.append(error)


def combine_errors(refused: Sequence[DarklodeError]) -> DarklodeError:
    """All that was held back as one error: of the first one's kind, which is that of days that wait where some do."""
    first, messages = refused[0], [message for error in refused for message in error.each]
    return HeldBack(*messages, days=first.days) if isinstance(first, HeldBack) else type(first)(*messages)


def format_summary(registry: str) -> str:
    """Which adapter is live for whom, in a sentence."""
    live = {tenant: order[-1] for tenant, order in sorted(AdapterRegistry(registry).live.items()) if order}
    return f"live in {registry}: " + (", ".join(f"{name} for {tenant}" for tenant, name in live.items()) or "nothing")
