"""nightly-adapt: mine the new days, adapt from the live adapter, and release it if it passes the gate."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from darklode.flows import open_systems
from darklode.flows.config import load_settings, read_project
from darklode.flows.jobs.adapt_encoder import adapt_encoder
from darklode.flows.jobs.adapt_tenants import adapt_tenants
from darklode.flows.jobs.job import Job
from darklode.flows.jobs.mine_logs import mine_logs
from darklode.flows.paths import FlowPath
from darklode.flows.prefect.progress import reporter
from darklode.flows.vector_source import ALL_TENANTS
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import DarklodeError, DoesNotFit, HeldBack, NoLift, SettingsError
from darklode.pipeline.serve.registry import AdapterRegistry
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.warm_start import require_head_method

REFUSALS = (HeldBack, NoLift, DoesNotFit)
ADAPTED_FOLDERS_SQL = "SELECT folder FROM adapted_tenants WHERE shipped = 'adapted' ORDER BY tenant"


def nightly_adapt(  # noqa: PLR0913 (the parameters of the Prefect flow)
    encoder: str,
    out: FlowPath,
    registry: FlowPath,
    logs: FlowPath | None = None,
    docs: FlowPath | None = None,
    mined: FlowPath | None = None,
    *,
    tenants: list[str] | None = None,
    share_with: list[str] | None = None,
    test_days: int = 7,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    config: FlowPath | None = None,
) -> str:
    """Mine, adapt and release; refusals are raised after all three.

    Can be killed at any time and run again. An adapter is released at most once, so one that was rolled back is not
    released again.

    Args:
        encoder: name of an encoder in the settings, or a sentence-transformers model.
        out: folder or s3:// prefix of the adapted encoder, or of all tenants' heads.
        registry: registry of released adapters; training starts from the live one, on the first night from the base.
        logs: file, folder or s3:// prefix of search logs; default: `paths.logs` of `config`.
        docs: file or folder of documents; default: `paths.docs` of `config`.
        mined: folder or s3:// prefix of the mined run; default: `paths.mined` of `config`.
        tenants: train a head for each of these, or for `all`; None: one adapter, for `adapt.tenant`.
        share_with: other tenants to release the adapter to, if it is worse for none of them; not with `tenants`.
        test_days: number of days at the end of the log that are test data, not training data.
        preset: base of the settings.
        settings: overrides of preset and config, as nested sections.
        config: settings file with paths, as `darklode init` writes it, on the machine that runs the job.

    Returns:
        The live adapters, in a sentence.

    Raises:
        HeldBack: a day of the log is held back; everything else is done.
        NoLift: no lift is shown, or a tenant would get worse; the live adapter stays.
        DoesNotFit: an adapter does not match the index.
        SettingsError: both `tenants` and `share_with`, or a method that cannot start from the live adapter.
    """
    if tenants and share_with:
        raise SettingsError("`tenants` and `share_with` exclude each other: each tenant gets its own head")
    project = read_project(config, preset)
    run, refusals = project.place("mined", mined), list[DarklodeError]()
    require_head_method(load_settings(project.preset, config, values=settings).adapt.with_head().method)
    with _collect_refusals(refusals):
        mine_logs(logs, docs, run, test_days=test_days, preset=preset, settings=settings, config=config)
    for adapter in _train_adapters(run, encoder, out, registry, tenants, refusals):
        if Adapter.open(adapter).id in AdapterRegistry(registry).adapters:
            continue
        with _collect_refusals(refusals):
            reporter().say(open_systems.release(adapter, run, registry, share_with or ()))
    if refusals:
        raise combine_errors(refusals)
    return format_summary(registry)


def _train_adapters(
    run: str, encoder: str, out: str, registry: str, tenants: list[str] | None, refusals: list[DarklodeError]
) -> list[str]:
    """Folders of the adapters to release."""
    folders = list[str]()
    with _collect_refusals(refusals):
        if tenants:
            tenant_names = () if tenants == [ALL_TENANTS] else tuple(tenants)
            adapt_tenants([run], encoder, out, tenant_names, warm_start=registry)
            folders = Run(out).tables("adapted_tenants").sql(ADAPTED_FOLDERS_SQL)["folder"].to_pylist()
            folders = [f"{out}/{folder}" for folder in folders]
        else:
            adapt_encoder([run], encoder, out, warm_start=registry)
            folders = [out]
    return folders


@contextmanager
def _collect_refusals(refusals: list[DarklodeError]) -> Iterator[None]:
    """Collect refusals, so that the other steps are still done."""
    try:
        yield
    except REFUSALS as error:
        refusals.append(error)


def combine_errors(refusals: Sequence[DarklodeError]) -> DarklodeError:
    """All refusals as one error of the first one's class; held days come first, since mining does."""
    first, messages = refusals[0], [message for error in refusals for message in error.each]
    return HeldBack(*messages, days=first.days) if isinstance(first, HeldBack) else type(first)(*messages)


def format_summary(registry: str) -> str:
    """The live adapter of each tenant, in a sentence."""
    live = {tenant: order[-1] for tenant, order in sorted(AdapterRegistry(registry).live.items()) if order}
    return f"live in {registry}: " + (", ".join(f"{name} for {tenant}" for tenant, name in live.items()) or "nothing")


JOB = Job("nightly-adapt", nightly_adapt, refusals=REFUSALS)
