"""A namespace that does not exist is an error before an image is built or pushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.api.conftest import Shell
from tests.unit.cli.object_server import ObjectServer

SPEC = "name: train\nimage: quay.io/team/train:1\ncommand: [torchrun, train.py]\n"
SUBMIT = ("submit", "job.yaml", "--backend", "kubernetes", "-n", "nowhere")


@pytest.mark.parametrize("option", [("--code", "."), ("--build", ".")])
def test_namespace_is_checked_before_a_build_and_a_push(option, cluster: ObjectServer, kfjob: Shell, here: Path):
    cluster.lacks_namespace = True
    (here / "job.yaml").write_text(SPEC)
    (here / "train.py").write_text("")
    assert kfjob(*SUBMIT, *option) == 3
    assert "error: there is no namespace `nowhere` on the cluster\nhint: `kubectl get namespaces`" in kfjob.err
    assert not [request for request in cluster.requests if request[0] != "GET"]
