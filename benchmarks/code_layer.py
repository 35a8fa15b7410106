"""Time from a changed line of code to that line's output in the new job on the test cluster: a code layer against a rebuild.

The baseline is the best case of a rebuild: a two-line Dockerfile on the same base, whose layers buildah has in its cache, then
push, stop and submit. Needs the cluster (`scripts/cluster up`, as root) and buildah.
Usage: python -m benchmarks.code_layer [rounds]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from kfjob import attach
from kfjob.api.settings import Settings
from kfjob.errors import KfjobError
from tests.cluster.facts import Space
from tests.cluster.facts import space as make_space
from tests.image.builders import buildah

REGISTRY, ADDRESS = "registry.kfjob.test", "127.0.0.1:26500"
KFJOB = str(Path(sys.executable).with_name("kfjob"))
JOB = "bench"
PATIENCE = 90.0


class Bench:
    def __init__(self, space: Space, folder: Path) -> None:
        self.space, self.folder = space, folder
        self.src = folder / "src"
        self.src.mkdir()
        (self.src / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY train.py /workspace/\n")
        (self.src / ".dockerignore").write_text("Dockerfile\n")
        certs = folder / "certs.d" / REGISTRY
        certs.mkdir(parents=True)
        (certs / "hosts.toml").write_text(f'[host."http://{ADDRESS}"]\ncapabilities = ["pull", "resolve", "push"]\n')
        registries = folder / "registries.conf"
        registries.write_text(f'[[registry]]\nprefix = "{REGISTRY}"\nlocation = "{ADDRESS}"\ninsecure = true\n')
        self.engine = buildah(folder / "buildah")
        mine = {
            "KUBECONFIG": space.facts.kubeconfig,
            "KFJOB_NAMESPACE": space.name,
            "KFJOB_STATE": str(folder / "state"),
            "KFJOB_REGISTRY_CERTS": str(folder / "certs.d"),
            "CONTAINERS_REGISTRIES_CONF": str(registries),
        }
        self.env = os.environ | mine | self.engine.environment
        os.environ["KUBECONFIG"] = space.facts.kubeconfig
        spec = {"name": JOB, "image": space.facts.image, "command": "python3 train.py"}
        (folder / "job.yaml").write_text(yaml.safe_dump(spec))
        self.settings = Settings(backend="kubernetes", namespace=space.name, state=folder / "state")

    def kfjob(self, *argv: str) -> str:
        done = subprocess.run([KFJOB, *argv], env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"kfjob {' '.join(argv)}\n{done.stderr}"
        return done.stdout.strip()

    def by_layer(self) -> None:
        self.kfjob("relaunch", JOB, "--code", str(self.src))

    def by_rebuild(self) -> None:
        words = ["--base-image", self.space.facts.image, "--builder", str(self.engine.program), "-q"]
        image = self.kfjob("push-image", str(self.src), "--to", f"{REGISTRY}/bench-rebuilt", *words)
        self.kfjob("stop", JOB)
        self.kfjob("submit", str(self.folder / "job.yaml"), "--set", f"image={image}")

    def seconds(self, how: Callable[[], None], mark: str) -> float:
        """From the change to its first line in the log."""
        (self.src / "train.py").write_text(f"print('{mark}', flush=True)\n")
        began = time.monotonic()
        how()
        while time.monotonic() < began + PATIENCE:
            try:
                lines = [getattr(line, "text", "") for line in attach(JOB, settings=self.settings).logs(f"{JOB}-worker-0")]
            except KfjobError:
                lines = []
            if mark in lines:
                return time.monotonic() - began
            time.sleep(0.1)
        raise AssertionError(f"`{mark}` was never printed")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with make_space() as space, tempfile.TemporaryDirectory() as folder:
        bench = Bench(space, Path(folder))
        (bench.src / "train.py").write_text("print('first')\n")
        bench.kfjob("submit", str(bench.folder / "job.yaml"), "--code", str(bench.src))
        ways = {"rebuild with buildah": bench.by_rebuild, "code layer": bench.by_layer}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):
            for name, how in ways.items():
                took = bench.seconds(how, f"{name}, round {number}")
                if number:  # the first fills caches
                    seconds[name].append(took)
        bench.kfjob("stop", JOB)
    base = statistics.median(seconds["rebuild with buildah"])
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:22} {median:6.2f} s to the new line, {median / base:.2f} x rebuild (median of {rounds})")


if __name__ == "__main__":
    main()
