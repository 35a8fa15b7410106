"""The rendezvous of the agents: backend, endpoint, id and timeouts."""

from __future__ import annotations

from kfjob.objects import names
from kfjob.plan.values import Decisions, RendezvousPlan
from kfjob.spec.job import JobSpec
from kfjob.spec.volumes import Volume

TLS_PATH = "/etc/kfjob/etcd-tls"

_LAST_CALL = ("last_call_timeout", "5", "seconds that an elastic job with enough agents waits for more (torch: 30)")
_TIMEOUTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "c10d": (
        ("read_timeout", "300", "seconds that an agent tries to reach the store of worker 0 (torch: 60; a pull takes longer)"),
        ("join_timeout", "900", "seconds to wait for all agents (torch: 600)"),
        _LAST_CALL,
    ),
    "etcd-v2": (
        ("read_timeout", "300", "seconds that an agent tries to reach etcd (torch: 60)"),
        ("join_timeout", "900", "seconds to wait for all agents (torch: 600)"),
        _LAST_CALL,
    ),
    "etcd": (("timeout", "900", "seconds to wait for all agents (torch: 600)"), _LAST_CALL),
    "static": (),
}
_TLS_KEYS = {"etcd": ("cacert", "cert", "key"), "etcd-v2": ("ca_cert", "ssl_cert", "ssl_cert_key")}
"""torch's names of the files (etcd_rendezvous.py `_create_etcd_client`, and the same in etcd_rendezvous_backend.py)."""


def plan_rendezvous(spec: JobSpec, first_pod: str, launch: str, decisions: Decisions) -> RendezvousPlan:
    """Return the rendezvous that every agent uses; `first_pod` is the name of the pod that sorts first, or of the Master."""
    backend = spec.rendezvous.backend if spec.is_dynamic else "static"
    conf = _tls_options(spec) | spec.rendezvous.conf
    for key, default, reason in _TIMEOUTS[backend]:
        conf[key] = decisions.decide(f"rendezvous.conf.{key}", conf.get(key), default, reason)
    host, port = _endpoint(spec, first_pod, backend, decisions)
    rendezvous_id = decisions.decide(
        "rendezvous.id",
        spec.rendezvous.id,
        make_id(spec, launch),
        "unique, so that a relaunch never meets the state of the launch before",
    )
    return RendezvousPlan(backend=backend, host=host, port=port, id=rendezvous_id, conf=tuple(sorted(conf.items())))


def make_id(spec: JobSpec, launch: str) -> str:
    """Return the rendezvous id of a launch."""
    return spec.rendezvous.id or f"{spec.name}-{launch}"


def tls_volumes(spec: JobSpec) -> tuple[Volume, ...]:
    """Return the volume with the certificates of a shared etcd."""
    if spec.rendezvous.tls is None:
        return ()
    return (Volume(name=names.TLS_VOLUME, mount_path=TLS_PATH, secret=spec.rendezvous.tls.secret, read_only=True),)


def _endpoint(spec: JobSpec, first_pod: str, backend: str, decisions: Decisions) -> tuple[str, int]:
    if spec.rendezvous.endpoint:
        host, _, port = spec.rendezvous.endpoint.rpartition(":")
        return host, int(port)
    if backend in ("c10d", "static"):
        number = spec.rendezvous.port
        reason = "the pod that sorts first hosts the store and is rank 0" if backend == "c10d" else "the master"
        if number is not None:
            decisions.decide("rendezvous.port", str(number), "", "")
        decisions.decide("rendezvous.endpoint", None, f"{first_pod}:{number or names.RENDEZVOUS_PORT}", reason)
        return first_pod, number or names.RENDEZVOUS_PORT
    host = names.etcd_name(spec.name)
    decisions.decide("rendezvous.endpoint", None, f"{host}:{names.ETCD_PORT}", "the job's own etcd")
    return host, names.ETCD_PORT


def _tls_options(spec: JobSpec) -> dict[str, str]:
    if spec.rendezvous.tls is None:
        return {}
    authority, certificate, key = _TLS_KEYS[spec.rendezvous.backend]
    conf = {"protocol": "https", authority: f"{TLS_PATH}/ca.crt"}
    if spec.rendezvous.tls.client_certificate:
        conf |= {certificate: f"{TLS_PATH}/tls.crt", key: f"{TLS_PATH}/tls.key"}
    return conf
