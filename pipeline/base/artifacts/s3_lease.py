"""The lease of a run on S3: an object that one process holds at a time, by conditional writes.

    RUN/.lock                         owner, start, number of renewals, and whether the lease was released

The object is created only if it does not exist (`If-None-Match: *`) and replaced only if its ETag is unchanged
(`If-Match`), so that of two processes one is refused. The holder renews it; the lease of a killed process expires by
the server's clock, or at once if the process ran on this machine and is gone. Before a manifest is written, the lease
is renewed: a process that was suspended for longer than the lease lasts cannot overwrite its successor's result.
"""

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from darklode.pipeline.base.artifacts.temporary_files import is_running, machine_id, new_lease
from darklode.pipeline.base.errors import ArtifactError

LEASE_SECONDS = 60.0
"""Age without renewal at which a lease has expired: how long a run stays locked after its machine fails."""
RENEWAL_SECONDS = 15.0
"""Interval of renewals: three may fail before the lease expires."""

WRONG_ETAG = '"00000000000000000000000000000000"'
"""ETag that no object has; a store that supports conditions refuses to replace an object with it."""
CONDITION_FAILED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404", "409", "412")
"""Error codes of a conditional write whose condition does not hold; with If-Match, the object may also be missing."""
NOT_SUPPORTED = ("NotImplemented", "501")
"""Error codes of stores that reject conditional writes."""

REMEDY = "wait for it or choose another --out"
"""What a command can do if another one writes to the run."""

_LOG = logging.getLogger("darklode.artifacts")


class ConditionalWritesUnsupported(Exception):
    """The store ignores or rejects conditional writes."""


@dataclass(frozen=True)
class LeaseRecord:
    """Content of the lease object on S3, and of the locked file in a folder.

    Attributes:
        host: name of the owner's host.
        pid: its process id.
        machine: see `machine_id`.
        since: start of the lease, ISO format, UTC.
        token: random, distinguishes leases of one process.
        renewals: makes the ETag of each renewal different.
        released: nobody holds the lease.
    """

    host: str
    pid: int
    machine: str
    since: str
    token: str
    renewals: int = 0
    released: bool = False

    @classmethod
    def of_this_process(cls) -> "LeaseRecord":
        """A new lease of this process."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), machine_id(), since, new_lease())

    @classmethod
    def parse(cls, data: bytes) -> "LeaseRecord | None":
        """Parse the object; None if it is damaged, which counts as held until it expires."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def dump(self) -> bytes:
        """Serialize to JSON."""
        return json.dumps(asdict(self), indent=1).encode()

    @property
    def owner(self) -> str:
        """Host, process and start, for messages."""
        return f"{self.host}, PID {self.pid}, since {self.since}"

    @property
    def is_abandoned(self) -> bool:
        """Whether the owner ran on this machine and no longer exists."""
        return self.machine == machine_id() and not is_running(self.pid)


def refusal(owner: LeaseRecord | None, url: str, remedy: str = REMEDY) -> str:
    """Message for a process that is refused, which names the owner of the run if it is known."""
    named = f" ({owner.owner})" if owner else ""
    return f"another process{named} is writing to {url}; {remedy}"


@dataclass(frozen=True)
class StoredLease:
    """The object as read: content, ETag, and seconds since it was last written, by the server's clock."""

    record: LeaseRecord | None
    etag: str
    age: float

    @property
    def is_free(self) -> bool:
        """Whether another process may take the lease over."""
        is_given_up = self.record is not None and (self.record.released or self.record.is_abandoned)
        return is_given_up or self.age > LEASE_SECONDS


class LeaseObject(Protocol):
    """An object with conditional writes. Writes return the new ETag, or None if the condition does not hold."""

    def create(self, data: bytes) -> str | None:
        """Write the object if it does not exist."""

    def replace(self, data: bytes, etag: str) -> str | None:
        """Write the object if it has this ETag."""

    def read(self) -> StoredLease | None:
        """Read the object; None if it does not exist."""

    def close(self) -> None:
        """Close connections."""


class S3LeaseObject:
    """An object on S3; pyarrow's filesystem has no conditional writes, so botocore makes the requests.

    Args:
        path: bucket and key, as `bucket/prefix/.lock`.
        environment: environment variables; both clients find endpoint, region and keys in the same ones.
    """

    def __init__(self, path: str, environment: Mapping[str, str] = os.environ) -> None:
        import botocore.session
        from botocore.config import Config

        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        # Servers other than AWS may know neither buckets in host names nor the newer checksums.
        config = Config(
            s3={"addressing_style": "path"} if endpoint else None,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"mode": "standard", "total_max_attempts": 3},
            connect_timeout=10,
            read_timeout=20,
        )
        bucket, _, key = path.partition("/")
        self._object = {"Bucket": bucket, "Key": key}
        self._client = botocore.session.get_session().create_client(
            "s3", endpoint_url=endpoint, region_name=region, config=config
        )

    def create(self, data: bytes) -> str | None:
        return self._put(data, {"IfNoneMatch": "*"})

    def replace(self, data: bytes, etag: str) -> str | None:
        return self._put(data, {"IfMatch": etag})

    def _put(self, data: bytes, condition: Mapping[str, str]) -> str | None:
        from botocore.exceptions import ClientError

        try:
            return str(self._client.put_object(**self._object, **condition, Body=data)["ETag"])
        except ClientError as error:
            codes = {error.response["Error"].get("Code"), str(error.response["ResponseMetadata"]["HTTPStatusCode"])}
            if codes & set(NOT_SUPPORTED):
                raise ConditionalWritesUnsupported from error
            if codes & set(CONDITION_FAILED) and "NoSuchBucket" not in codes:
                return None
            raise

    def read(self) -> StoredLease | None:
        from botocore.exceptions import ClientError

        try:
            reply = self._client.get_object(**self._object)
            data = reply["Body"].read()
        except ClientError as error:
            if error.response["Error"].get("Code") == "NoSuchKey":
                return None
            raise
        date = reply["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return StoredLease(LeaseRecord.parse(data), str(reply["ETag"]), (now - reply["LastModified"]).total_seconds())

    def close(self) -> None:
        self._client.close()


class RunLease:
    """The lease of this process on a run. A thread renews it until it is released.

    Args:
        lease_object: the object.
        url: the run, for messages.
        remedy: what a process that is refused can do, for the message.
    """

    def __init__(self, lease_object: LeaseObject, url: str, remedy: str = REMEDY) -> None:
        self._object = lease_object
        self._url = url
        self._remedy = remedy
        self._record = LeaseRecord.of_this_process()
        self._etag: str | None = None
        self._mutex = threading.Lock()  # of ETag and record: `confirm` and the thread both renew
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_ended, name="darklode-lease", daemon=True)

    def acquire(self) -> None:
        """Take the lease and start to renew it.

        Raises:
            ArtifactError: another process holds it.
            ConditionalWritesUnsupported: the store cannot tell two processes apart.
        """
        self._etag = self._object.create(self._record.dump()) or self._take_over()
        if self._object.replace(self._record.dump(), WRONG_ETAG) is not None:
            raise ConditionalWritesUnsupported
        self._thread.start()

    def _take_over(self) -> str:
        stored = self._object.read()
        if stored is not None:
            if self._is_own(stored):  # a write whose reply was lost was repeated
                return stored.etag
            if not stored.is_free:
                raise ArtifactError(self._refusal(stored))
        data = self._record.dump()
        etag = self._object.replace(data, stored.etag) if stored else self._object.create(data)
        if etag is None:
            raise ArtifactError(self._refusal(self._object.read()))
        return etag

    def _is_own(self, stored: StoredLease | None) -> bool:
        return stored is not None and stored.record is not None and stored.record.token == self._record.token

    def _refusal(self, stored: StoredLease | None) -> str:
        """Message that names the holder, and when its lease expires."""
        record = stored.record if stored else None
        message = refusal(record, self._url, self._remedy)
        if stored is None:
            return message
        remaining = max(1, round(LEASE_SECONDS - stored.age))
        return f"{message}. If it was killed, its lease expires in {remaining} s"

    def confirm(self) -> None:
        """Renew the lease now.

        Raises:
            ArtifactError: another process has taken it over, or S3 cannot be reached.
        """
        with self._mutex, _explain_s3_errors(self._url):
            self._renew()

    def _renew(self) -> None:
        record = replace(self._record, renewals=self._record.renewals + 1)
        etag = self._object.replace(record.dump(), self._etag) if self._etag else None
        if etag is None:
            stored = self._object.read()
            etag = stored.etag if stored and stored.record == record else None  # a repeated write
        self._record, self._etag = record, etag
        if etag is None:
            raise ArtifactError(
                f"this process was suspended, or could not reach S3, for more than {LEASE_SECONDS:.0f} s, and another "
                f"one now writes to {self._url}; this one stops. Run the same command again when the other has finished"
            )

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(RENEWAL_SECONDS):
            with self._mutex:
                if self._ended.is_set() or self._etag is None:
                    return
                with suppress(Exception):  # `confirm` reports a lost lease; S3 may be reachable again in time
                    self._renew()

    def release(self) -> None:
        """Stop renewing, and mark the lease as released; if that fails, it expires."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._etag is not None:
            with suppress(Exception):
                self._object.replace(replace(self._record, released=True).dump(), self._etag)


@contextmanager
def hold_s3_lease(path: str, url: str, remedy: str = REMEDY) -> Iterator[RunLease | None]:
    """Hold the lease of a run on S3; yields None, after a warning, if the store has no conditional writes.

    Args:
        path: the object, as `bucket/prefix/.lock`.
        url: the run, for messages.
        remedy: what a process that is refused can do, for the message.

    Raises:
        ArtifactError: another process holds it, or S3 cannot be used.
    """
    lease_object = S3LeaseObject(path)
    lease: RunLease | None = RunLease(lease_object, url, remedy)
    assert lease is not None
    try:
        with _explain_s3_errors(url):
            try:
                lease.acquire()
            except ConditionalWritesUnsupported:
                _LOG.warning(
                    "The S3 server of %s has no conditional writes (If-Match), so that two commands that write to this "
                    "run at the same time are not told apart. Make sure that only one runs.",
                    url,
                )
                lease = None
        yield lease
    finally:
        if lease is not None:
            lease.release()
        lease_object.close()


@contextmanager
def _explain_s3_errors(url: str) -> Iterator[None]:
    """Turn botocore's errors into errors of a run.

    Raises:
        ArtifactError: S3 refused the request or cannot be reached.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        details: Mapping[str, Any] = error.response["Error"]
        reason = f"{details.get('Code')}: {details.get('Message')}"
        message = f"S3 refused {error.operation_name} ({reason}) for {url}; check the bucket, AWS_REGION and the keys"
        raise ArtifactError(f"{message} in AWS_*") from error
    except BotoCoreError as error:
        remedy = "check the network, AWS_ENDPOINT_URL, AWS_REGION and the keys in AWS_*, and run the same command again"
        raise ArtifactError(f"S3 cannot be used for {url} ({error}); {remedy}") from error
