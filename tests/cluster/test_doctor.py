"""doctor on the real cluster, with all rights, a submitter's, and none."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from kfjob.api.doctor.cluster import NEEDED, USEFUL
from tests.cluster.test_bad_input import kfjob

ASKED = ("api server", "crd", "operator", "webhook", "rights", "nodes", "queues")


def asked(space: Any, folder: Path, user: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    done: subprocess.CompletedProcess[str] = kfjob(space, folder, "doctor", *ASKED, "-o", "json", user=user)
    found: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(done.stdout):
        found.setdefault(finding["name"], []).append(finding)
    return done.returncode, found


def test_an_administrator_sees_a_healthy_cluster(space, tmp_path):
    code, found = asked(space, tmp_path, "admin")
    assert code == 0, found
    assert "Kubernetes v1." in found["api server"][0]["said"]
    assert "kubeflow.org/v1, of operator 1.9 or newer" in found["crd"][0]["said"]
    assert "1 of 1 ready" in found["operator"][0]["said"]
    assert (found["webhook"][0]["verdict"], found["webhook"][0]["said"]) == ("ok", "answers")
    assert found["rights"] == [
        {
            "name": "rights",
            "verdict": "ok",
            "said": f"all {len(NEEDED) + len(USEFUL)} that kfjob uses in `{space.name}`",
            "remedy": "",
        }
    ]
    assert found["nodes"][0]["verdict"] == "ok"


def test_a_submitter_has_every_right_that_kfjob_uses(space, tmp_path):
    code, found = asked(space, tmp_path, "submitter")
    assert code == 0, found
    assert found["rights"][0]["verdict"] == "ok"
    assert found["webhook"][0]["said"] == "answers"
    assert "cannot be seen with these rights" in found["nodes"][0]["said"]


def test_nobody_is_told_which_rights_are_missing_and_who_gives_them(space, tmp_path):
    code, found = asked(space, tmp_path, "nobody")
    assert code == 1
    needed, useful = found["rights"]
    assert (needed["verdict"], useful["verdict"]) == ("fail", "warn")
    assert "pytorchjobs.kubeflow.org: create, get, list, watch, update, patch, delete" in needed["said"]
    assert "pods/log: get" in needed["said"]
    assert f"kubectl apply -n {space.name} -f manifests/rbac/submitter.yaml" in needed["remedy"]
    assert "events" in useful["said"]


def test_nothing_was_created(space, tmp_path):
    kfjob(space, tmp_path, "doctor", "webhook")
    assert not json.loads(kfjob(space, tmp_path, "list", "-o", "json").stdout)
