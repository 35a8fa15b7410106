"""A volume claim in a test's namespace that the pods of several jobs share.

On the cluster of `scripts/cluster up` the volume is a folder of the node. On another cluster `KFJOB_TEST_STORAGE_CLASS` names a
storage class with shared volumes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kfjob.base.errors import KfjobError
from tests.cluster.facts import Space

SHARED = "/run/kfjob/shared"  # as in tests/cluster/harness/settings.sh; writable for all users


@contextmanager
def shared_claim(space: Space, name: str) -> Iterator[None]:
    own_cluster = not os.environ.get("KFJOB_TEST_KUBECONFIG")
    volume = f"{space.name}-{name}"
    claim: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim |= (
        {"storageClassName": "", "volumeName": volume}
        if own_cluster
        else {"storageClassName": os.environ["KFJOB_TEST_STORAGE_CLASS"]}
    )
    if own_cluster:
        source = {"hostPath": {"path": SHARED}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]}
        space.send("POST", "/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": source})
    try:
        claims = f"/api/v1/namespaces/{space.name}/persistentvolumeclaims"
        space.send("POST", claims, {"metadata": {"name": name}, "spec": claim})
        yield
    finally:
        if own_cluster:
            with suppress(KfjobError):
                space.send("DELETE", f"/api/v1/persistentvolumes/{volume}")
