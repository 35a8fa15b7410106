"""The Lease of the guard: of several guards in a namespace one acts, and the others wait (coordination.k8s.io/v1).

Clocks of two machines may differ. So a waiting guard takes the Lease over when it has not seen it change for `DURATION_SECONDS`
of its own clock, as client-go does (tools/leaderelection).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from kfjob.backends.base import ClusterBackend
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import AlreadyExists, KfjobError, NotFound, Refused
from kfjob.guard.records import COMPONENT, LEASES
from kfjob.objects.reading import format_time

DURATION_SECONDS = 15
"""Time without a renewal after which another guard takes over."""
RENEW_SECONDS = 5.0
GIVE_UP_SECONDS = 10.0
"""Time without a successful renewal after which the holder stops acting: before another guard takes over."""
_POLL_SECONDS = 1.0


class GuardLease:
    """The Lease of one namespace, for one holder."""

    def __init__(self, cluster: ClusterBackend, namespace: str, holder: str) -> None:
        """Send nothing yet."""
        self._cluster = cluster
        self._namespace = namespace
        self._holder = holder
        self._seen = ""  # the newest resource version, and when it was seen first
        self._seen_at = 0.0
        self._released = False

    def acquire(self, notify: Callable[[str], None]) -> None:
        """Wait until this guard holds the Lease.

        Raises:
            Forbidden, Unreachable: the Lease cannot be read or written.
        """
        notified = False
        while not self._try_acquire():
            if not notified:
                notify("another guard acts in this namespace; this one waits until it ends")
                notified = True
            time.sleep(_POLL_SECONDS)

    def keep(self, on_loss: Callable[[KfjobError | None], None]) -> None:
        """Renew the Lease in a thread; call `on_loss` when another guard has it (with None), or when it cannot be renewed."""
        threading.Thread(target=self._renew, args=[on_loss], name="kfjob-guard-lease", daemon=True).start()

    def release(self) -> None:
        """Let another guard take over at once; without this it waits until the Lease has run out."""
        self._released = True
        with suppress(KfjobError):
            lease = self._cluster.inventory(self._namespace).get_object(LEASES, "leases", COMPONENT)
            if lease and (lease.get("spec") or {}).get("holderIdentity") == self._holder:
                made = self._make(lease)
                self._cluster.replace_object({**made, "spec": {**made["spec"], "holderIdentity": ""}})

    def _renew(self, on_loss: Callable[[KfjobError | None], None]) -> None:
        last, error = time.monotonic(), None
        while time.monotonic() - last < GIVE_UP_SECONDS:
            time.sleep(RENEW_SECONDS)
            if self._released:
                return
            try:
                if not self._try_acquire():
                    error = None
                    break
                last = time.monotonic()
            except KfjobError as err:
                error = err
        on_loss(error)

    def _try_acquire(self) -> bool:
        """Return whether this guard holds the Lease now."""
        lease = self._cluster.inventory(self._namespace).get_object(LEASES, "leases", COMPONENT)
        try:
            if lease is None:
                self._cluster.create_object(self._make({}))
                return True
            if not self._is_free(lease):
                return False
            self._cluster.replace_object(self._make(lease))
        except (AlreadyExists, NotFound, Refused):  # another guard was faster
            return False
        return True

    def _is_free(self, lease: JsonObject) -> bool:
        version = lease["metadata"].get("resourceVersion", "")
        if version != self._seen:
            self._seen, self._seen_at = version, time.monotonic()
        holder = (lease.get("spec") or {}).get("holderIdentity")
        return holder in (None, "", self._holder) or time.monotonic() - self._seen_at > DURATION_SECONDS

    def _make(self, lease: JsonObject) -> JsonObject:
        now, spec = format_time(time.time(), microseconds=True), lease.get("spec") or {}
        is_new = spec.get("holderIdentity") != self._holder
        metadata = {"name": COMPONENT, "namespace": self._namespace}
        if version := (lease.get("metadata") or {}).get("resourceVersion"):
            metadata["resourceVersion"] = version
        return {
            "apiVersion": LEASES,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": now if is_new else spec.get("acquireTime", now),
                "renewTime": now,
                "leaseTransitions": spec.get("leaseTransitions", 0) + (1 if lease and is_new else 0),
            },
        }


def name_holder() -> str:
    """Return the name of this process in a Lease; in a pod, that of the container before a restart too."""
    return f"{os.uname().nodename}_{os.getpid()}"
