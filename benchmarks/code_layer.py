"""Time from a changed line of code to its output in the new job on the test cluster: a code layer compared with a rebuild.

The baseline is the best case of a rebuild: a two-line Dockerfile on the same base, with the base's layers in buildah's cache,
then push, stop and submit. It needs the test cluster (`scripts/cluster up`, as root) and buildah.
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
from kfjob.base.errors import KfjobError
from tests.cluster.facts import Space
from tests.cluster.facts import space as make_space
from tests.image.builders import buildah

REGISTRY, ADDRESS = "registry.kfjob.test", "127.0.0.1:26500"
KFJOB = str(Path(sys.executable).with_name("kfjob"))
JOB = "bench"
PATIENCE = 90.0


class Bench:
    """A job, its code and the two ways to update it."""

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
        variables = {
            "KUBECONFIG": space.facts.kubeconfig,
            "KFJOB_NAMESPACE": space.name,
            "KFJOB_STATE": str(folder / "state"),
            "KFJOB_REGISTRY_CERTS": str(folder / "certs.d"),
            "CONTAINERS_REGISTRIES_CONF": str(registries),
        }
        self.env = os.environ | variables | self.engine.environment
        os.environ["KUBECONFIG"] = space.facts.kubeconfig
        spec = {"name": JOB, "image": space.facts.image, "command": "python3 train.py"}
        (folder / "job.yaml").write_text(yaml.safe_dump(spec))
        self.settings = Settings(backend="kubernetes", namespace=space.name, state=folder / "state")

    def kfjob(self, *argv: str) -> str:
        result = subprocess.run([KFJOB, *argv], env=self.env, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"kfjob {' '.join(argv)}\n{result.stderr}"
        return result.stdout.strip()

    def by_layer(self) -> None:
        self.kfjob("relaunch", JOB, "--code", str(self.src))

    def by_rebuild(self) -> None:
        options = ["--base-image", self.space.facts.image, "--builder", str(self.engine.program), "-q"]
        image = self.kfjob("push-image", str(self.src), "--to", f"{REGISTRY}/bench-rebuilt", *options)
        self.kfjob("stop", JOB)
        self.kfjob("submit", str(self.folder / "job.yaml"), "--set", f"image={image}")

    def seconds(self, update: Callable[[], None], mark: str) -> float:
        """Return the time from the change to its first line in the log."""
        (self.src / "train.py").write_text(f"print('{mark}', flush=True)\n")
        start = time.monotonic()
        update()
        while time.monotonic() < start + PATIENCE:
            try:
                lines = [getattr(line, "text", "") for line in attach(JOB, settings=self.settings).logs(f"{JOB}-worker-0")]
            except KfjobError:
                lines = []
            if mark in lines:
                return time.monotonic() - start
            time.sleep(0.1)
        raise AssertionError(f"`{mark}` was never printed")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with make_space() as space, tempfile.TemporaryDirectory() as folder:
        bench = Bench(space, Path(folder))
        (bench.src / "train.py").write_text("print('first')\n")
        bench.kfjob("submit", str(bench.folder / "job.yaml"), "--code", str(bench.src))
        methods = {"rebuild with buildah": bench.by_rebuild, "code layer": bench.by_layer}
        seconds: dict[str, list[float]] = {name: [] for name in methods}
        for number in range(rounds + 1):
            for name, update in methods.items():
                duration = bench.seconds(update, f"{name}, round {number}")
                if number:  # the first round fills the caches
                    seconds[name].append(duration)
        bench.kfjob("stop", JOB)
    base = statistics.median(seconds["rebuild with buildah"])
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{name:22} {median:6.2f} s to the new line, {median / base:.2f} x rebuild (median of {rounds})")


if __name__ == "__main__":
    main()
