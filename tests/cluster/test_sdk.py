"""The example of docs/moving/kubeflow-training.md: the SDK's client creates the job, and kfjob finds its master."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from kfjob.spec.job import JobSpec
from tests.cluster.facts import ROOT, Space

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

PRINTS = 'case "$HOSTNAME" in *-0) echo "Batch 1 Loss: 2.50000, Speed: 1.00 samples/sec, lr: 0.000100" ;; esac'


def example(namespace: str, spec: JobSpec) -> str:
    """Return the example's code with the namespace and the spec of this cluster."""
    code = "\n".join(BLOCK.findall((ROOT / "docs/moving/kubeflow-training.md").read_text(encoding="utf-8")))
    code, namespaces = re.subn(r'^namespace = ".*"$', f"namespace = {namespace!r}", code, flags=re.MULTILINE)
    text = spec.model_dump_json(exclude_defaults=True)
    code, specs = re.subn(r"^spec = .*$", lambda _: f"spec = JobSpec.model_validate_json({text!r})", code, flags=re.MULTILINE)
    assert (namespaces, specs) == (1, 1)
    return code + "assert restored == spec.model_copy(update={'namespace': namespace}), restored\n"


def test_example_of_the_guide_runs(space: Space, name: str, tmp_path):
    spec = JobSpec(name=name, image=space.facts.image, nodes=2, command=["sh", "-c", PRINTS])
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")}
    env |= {"KUBECONFIG": space.facts.kubeconfig, "KFJOB_STATE": str(tmp_path / "state")}
    process = subprocess.run(
        [sys.executable, "-c", example(space.name, spec)], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == f"{name}-worker-0\n"
