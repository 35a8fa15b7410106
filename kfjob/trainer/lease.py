"""The lease of a folder of checkpoints: one job at a time writes to it.

Rank 0 holds the lease, a small file that it renews until the run ends. Another job takes a lease over only if its owner is
dead: it is a process of this machine that has ended, it was a process of the same launch on another machine, or it did not
renew the lease while the other job watched it. No clocks are compared.

The owner does not know whether another job took the lease over and released it again while the owner was stopped. So it has
lost the lease when the file is gone or another job's, and when it could not renew it for `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from kfjob.base.errors import AlreadyExists, KfjobError
from kfjob.trainer.distributed import Ranks
from kfjob.trainer.metrics import log
from kfjob.trainer.process_identity import ProcessIdentity, identify_process
from kfjob.trainer.storage import Storage

LEASE_FILE = "lease.json"
RENEWAL = 10.0
"""Seconds between two renewals."""
PATIENCE_SECONDS = 3 * RENEWAL
"""Time without a renewal after which the owner of a checkpoint folder counts as dead."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The content of a lease."""

    token: str
    """New for each run of rank 0."""
    run_id: str
    process: ProcessIdentity
    renewals: int = 0


_OWNER = TypeAdapter(Owner)


class LostLeaseError(KfjobError):
    """Another job may write to the folder by now, so this run cannot save there any more."""


class Lease:
    """A lease that this rank holds."""

    def __init__(self, storage: Storage, run_id: str, pid: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare a lease of `storage` for the process `pid`."""
        self._storage, self._ended, self._clock = storage, threading.Event(), clock
        self._renewed = clock()
        """When the last renewal that succeeded began."""
        self._owner = Owner(token=secrets.token_hex(8), run_id=run_id, process=identify_process(pid))
        self._renewals = 0

    def acquire(self, *, patience: float = PATIENCE_SECONDS) -> None:
        """Take the lease.

        Raises:
            KfjobError: another job holds it.
        """
        self._renewed = self._clock()
        if not self._write(overwrite=False):
            self._wait_for_end(patience)
            self._renewed = self._clock()
            self._write(overwrite=True)
        self.check()

    def check(self) -> None:
        """Check that the lease is still this run's.

        Raises:
            LostLeaseError: it is gone or of another job, or this run did not renew it in time.
            KfjobError: it cannot be read.
        """
        text = self._storage.read_file(LEASE_FILE)
        owner = _parse_owner(text)
        if owner and owner.token != self._owner.token:
            raise _in_use(self._storage, owner, LostLeaseError)
        if owner is None:
            raise self._lost(
                f"its {LEASE_FILE} is {'gone' if text is None else 'not readable'}, so another job may have used it"
            )
        if (age := self._clock() - self._renewed) > PATIENCE_SECONDS:
            cause = f"{LEASE_FILE} was not renewed for {age:.0f} s: the process was stopped, or the storage not available"
            raise self._lost(cause)

    def renew_until_release(self) -> None:
        """Renew the lease every `RENEWAL` seconds, until `end_renewals`."""
        while not self._ended.wait(RENEWAL):
            try:
                self.check()
                self._renew()
            except LostLeaseError:
                return
            except KfjobError as error:  # the storage may be unavailable for a moment; every commit checks the lease
                log.debug("Lease not renewed: %s", error.title)

    def end_renewals(self) -> None:
        """Make `renew_until_release` return."""
        self._ended.set()

    def release(self) -> None:
        """Remove the lease if it is still this run's; a renewal after that would write it again."""
        with suppress(KfjobError):
            self.check()
            self._storage.remove_file(LEASE_FILE)

    def _write(self, *, overwrite: bool) -> bool:
        content = asdict(self._owner) | {"renewals": self._renewals}
        return self._storage.write_file(LEASE_FILE, json.dumps(content) + "\n", overwrite=overwrite)

    def _renew(self) -> None:
        """Renew the lease; a renewal that ends too late changes nothing, because another job may have come in between."""
        began, self._renewals = self._clock(), self._renewals + 1
        self._write(overwrite=True)
        if self._clock() - self._renewed <= PATIENCE_SECONDS:
            self._renewed = began

    def _lost(self, cause: str) -> LostLeaseError:
        hint = "start it again: it resumes from the newest checkpoint there; use one `checkpoint_dir` for each job"
        title = f"this run may no longer write to `{self._storage.location}`"
        return LostLeaseError(title, location="checkpoint_dir", cause=cause, hint=hint)

    def _wait_for_end(self, patience: float) -> None:
        """Return when the present owner is dead."""
        first = self._storage.read_file(LEASE_FILE)
        owner = _parse_owner(first)
        state = owner.process.state if owner else "unknown"
        has_own_id = bool(owner and owner.run_id and owner.run_id == self._owner.run_id)
        if first is None or state == "gone" or (has_own_id and state == "unknown"):  # torchrun ends all ranks before a restart
            return
        if owner and state == "running" and not has_own_id:
            raise _in_use(self._storage, owner)
        log.info(
            "Waiting up to %.0f s to see whether the owner of %s/%s is alive", patience, self._storage.location, LEASE_FILE
        )
        deadline = self._clock() + patience
        while self._clock() < deadline:
            self._ended.wait(min(1.0, patience / 10))
            present = self._storage.read_file(LEASE_FILE)
            if present is None:
                return
            if present != first:
                raise _in_use(self._storage, _parse_owner(present) or self._owner)
            if owner and owner.process.state == "gone":
                return
        if owner and owner.process.state == "running":  # a rank whose agent was killed ends soon, because its peers have ended
            raise _in_use(self._storage, owner)


@contextmanager
def hold_lease(storage: Storage, ranks: Ranks, pid: int) -> Iterator[Lease | None]:
    """Hold the lease of `storage` on rank 0, the process `pid`, during the block.

    Raises:
        KfjobError: another job holds it.
    """
    lease = Lease(storage, ranks.run_id, pid) if ranks.is_rank_zero else None
    with ranks.fail_together():
        if lease:
            storage.create()
            lease.acquire()
    renewal = threading.Thread(target=lease.renew_until_release, daemon=True, name="lease") if lease else None
    if renewal:
        renewal.start()
    try:
        yield lease
    finally:
        if lease and renewal:
            lease.end_renewals()
            renewal.join()
            lease.release()


def _parse_owner(text: str | None) -> Owner | None:
    try:
        return _OWNER.validate_json(text) if text else None
    except ValidationError:
        return None


def _in_use(storage: Storage, owner: Owner, kind: type[KfjobError] = AlreadyExists) -> KfjobError:
    run = f"run {owner.run_id}, " if owner.run_id else ""
    return kind(
        f"another job writes to `{storage.location}`",
        location="checkpoint_dir",
        cause=f"its {LEASE_FILE} belongs to {run}process {owner.process.pid} on {owner.process.host}",
        hint="use another `checkpoint_dir`, or stop that job first",
    )
