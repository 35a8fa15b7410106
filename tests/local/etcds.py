"""Real etcd servers for tests."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from kfjob.local.machine import free_port

PATIENCE = 60.0


@dataclass(frozen=True)
class Etcd:
    """One that serves, on loopback."""

    port: int

    def call(self, method: str, path: str, body: Any = None, login: str = "") -> int:
        """The status that it answers."""
        headers = urllib3.make_headers(basic_auth=login) if login else None
        url = f"http://127.0.0.1:{self.port}{path}"
        return urllib3.request(method, url, json=body, headers=headers, timeout=10, retries=False).status


@contextmanager
def serving(program: str, folder: Path) -> Iterator[Etcd]:
    """An etcd with the v2 API, until the test is over."""
    client, peer = free_port(), free_port()
    here, there = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    options = {
        "data-dir": str(folder / "data"),
        "enable-v2": "true",
        "listen-client-urls": here,
        "advertise-client-urls": here,
        "listen-peer-urls": there,
        "initial-advertise-peer-urls": there,
        "initial-cluster": f"default={there}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log:
        argv = [program, *(f"--{name}={value}" for name, value in options.items())]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            etcd = Etcd(client)
            until_it_answers(etcd, process, folder / "log")
            yield etcd
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


def until_it_answers(etcd: Etcd, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text(errors="replace")
        try:
            if etcd.call("GET", "/health") == 200:
                return
        except urllib3.exceptions.HTTPError:
            assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.05)


LEASE = """
import sys, time
import etcd
from torch.distributed.elastic.rendezvous import etcd_rendezvous

TTL = 4  # instead of two hours
etcd_rendezvous.CONST_RUNID_SUBROOT_TTL = TTL
client = etcd.Client(host="127.0.0.1", port=int(sys.argv[1]))
rendezvous = etcd_rendezvous.EtcdRendezvous(client, "/torchelastic/p2p", "run", 1, 1, 60, 1)
made = client.get("/torchelastic/p2p/run_run").createdIndex
deadline = time.monotonic() + 3 * TTL
while time.monotonic() < deadline:
    try:
        assert client.get("/torchelastic/p2p/run_run").createdIndex == made
    except etcd.EtcdKeyNotFound:
        sys.exit("the directory is gone")
    time.sleep(0.5)
sys.stdout.write("the directory is kept\\n")
"""
"""What torch's `etcd` rendezvous does to the directory that holds all of a run, over three times its lease."""

ADD_UP = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("world", int(total.item()), flush=True)
dist.destroy_process_group()
"""
