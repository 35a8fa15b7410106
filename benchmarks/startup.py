"""CPU time of light kfjob commands, compared with a bare interpreter with the same libraries, alternating in one run.

The baseline is `python -c "from pydantic import BaseModel; import click, yaml"`. A ratio past its goal has a mark, and the exit
code is then 1.

For the list of a cluster the program starts an HTTP server on the loopback that answers as an API server does. One of its three
jobs prints progress, so logs are read too. Most of that time is the import of the `kubernetes` package, whose version the last
line names. So the row is compared with the import.

Usage: python benchmarks/startup.py [rounds] [root of another checkout]
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

SPEC = "name: tiny\nimage: registry.example/train:1\nnodes: 4\nresources: {gpus: 8}\ncommand: torchrun train.py\n"
ROOT = Path(__file__).parents[1]


class Program(NamedTuple):
    """Python code, with the arguments of the command line."""

    code: str
    words: tuple[str, ...] = ()
    goal: float | None = None
    """The highest ratio that is fine."""
    compared_with: str = "baseline"


KFJOB = "from kfjob.cli.main import main; main()"
PROGRAMS = {
    "baseline": Program("from pydantic import BaseModel; import click, yaml"),
    "kfjob --help": Program(KFJOB, ("--help",), goal=0.45),
    "kfjob render": Program(KFJOB, ("render", "job.yaml"), goal=2.0),
    "kfjob validate": Program(KFJOB, ("validate", "job.yaml"), goal=2.0),
    "kfjob list": Program(KFJOB, ("list", "--backend", "local"), goal=1.0),
    "import kubernetes": Program("import kubernetes"),
    "list of a cluster": Program(KFJOB, ("list", "--backend", "kubernetes"), goal=1.5, compared_with="import kubernetes"),
    "kfjob.submit": Program("import kfjob; kfjob.submit", goal=2.2),
}


def make_object(kind: str, name: str, **fields: object) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": "2026-11-28T10:00:00Z"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata | fields.pop("metadata", {}), **fields}  # type: ignore[operator]


def make_job(name: str, state: str) -> dict[str, object]:
    replicas = {"Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}}}
    condition = {"type": state, "status": "True", "lastTransitionTime": "2026-11-28T10:00:05Z"}
    status = {"conditions": [condition], "startTime": "2026-11-28T10:00:05Z"}
    return make_object("PyTorchJob", name, spec={"pytorchReplicaSpecs": replicas}, status=status)


def make_pod(job: str, index: int) -> dict[str, object]:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job, "uid": f"uid-{job}", "controller": True}
    labels = {"training.kubeflow.org/job-name": job, "training.kubeflow.org/replica-index": str(index)}
    state = {"running": {"startedAt": "2026-11-28T10:00:05Z"}}
    container = {"name": "pytorch", "restartCount": 0, "containerID": f"containerd://{job}{index}", "state": state}
    status = {"phase": "Running", "containerStatuses": [container]}
    return make_object("Pod", f"{job}-worker-{index}", metadata={"ownerReferences": [owner], "labels": labels}, status=status)


LINES = [f"2026-11-28T10:00:05.{step:09}Z step {step}/500 loss {8 - step / 100:.4f}\n" for step in range(300)]
JOBS = [make_job("train", "Running"), make_job("queued", "Created"), make_job("waiting", "Created")]


class ApiServer(BaseHTTPRequestHandler):
    """Answers the calls of `kfjob list`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path.endswith("/log"):
            self._send("".join(LINES[-int(query.get("tailLines", "0")) :]))
        elif url.path.endswith("/pytorchjobs"):
            self._send(json.dumps({"metadata": {"resourceVersion": "1"}, "items": JOBS}))
        elif "/pods" in url.path:
            pods = [make_pod("train", index) for index in range(2)]
            name = url.path.rpartition("/pods/")[2]
            single = next((pod for pod in pods if pod["metadata"]["name"] == name), None)  # type: ignore[index]
            self._send(json.dumps(single or {"metadata": {"resourceVersion": "1"}, "items": pods}))
        else:
            self._send("{}", status=404)

    def _send(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


def start_server(folder: str) -> str:
    """Start the API server in a thread, and return the path of its kubeconfig."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": "none"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path = Path(folder) / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def measure(program: Program, folder: str, env: dict[str, str]) -> float:
    """Return the CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-P", "-c", program.code, *program.words]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    root = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else ROOT
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.yaml").write_text(SPEC, encoding="utf-8")
        # cache byte code for all programs, as in an installed package
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": f"{folder}/cache", "PYTHONPATH": str(root), "HOME": folder}
        env |= {"KUBECONFIG": start_server(folder)}
        for program in PROGRAMS.values():
            measure(program, folder, env)
        seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
        for _ in range(rounds):
            for name, program in PROGRAMS.items():
                seconds[name].append(measure(program, folder, env))
    means = {name: statistics.fmean(values) for name, values in seconds.items()}
    print(f"{'PROGRAM':17} {'CPU':>7} {'RATIO':>6} {'GOAL':>5}  OF         (mean of {rounds}, {root})")
    is_slow = False
    for name, program in PROGRAMS.items():
        ratio = means[name] / means[program.compared_with]
        is_past = program.goal is not None and ratio > program.goal
        is_slow = is_slow or is_past
        mark = "  << past its goal" if is_past else ""
        print(f"{name:17} {means[name]:5.3f} s {ratio:6.2f} {program.goal or '':>5}  {program.compared_with}{mark}")
    print(f"kubernetes {version('kubernetes')}")
    sys.exit(is_slow)


if __name__ == "__main__":
    main()
