"""`kfjob doctor` on the real cluster as administrator, as submitter, and without rights."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from kfjob.kinds.registry import find_kind
from tests.cluster.test_bad_input import kfjob

KIND = find_kind("")
CHECKS = ("api server", "crd", "operator", "webhook", "rights", "nodes", "queues")


def run_doctor(space: Any, folder: Path, user: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    result: subprocess.CompletedProcess[str] = kfjob(space, folder, "doctor", *CHECKS, "-o", "json", user=user)
    findings: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(result.stdout):
        findings.setdefault(finding["name"], []).append(finding)
    return result.returncode, findings


def test_administrator_sees_a_healthy_cluster(space, tmp_path):
    code, findings = run_doctor(space, tmp_path, "admin")
    assert code == 0, findings
    assert "Kubernetes v1." in findings["api server"][0]["message"]
    assert "kubeflow.org/v1, from operator 1.9 or newer" in findings["crd"][0]["message"]
    assert "1 of 1 ready" in findings["operator"][0]["message"]
    assert (findings["webhook"][0]["verdict"], findings["webhook"][0]["message"]) == ("ok", "answers")
    assert findings["rights"] == [
        {
            "name": "rights",
            "verdict": "ok",
            "message": f"all {len(KIND.permissions) + len(KIND.useful_permissions)} rights that kfjob uses in `{space.name}`",
            "remedy": "",
        }
    ]
    assert findings["nodes"][0]["verdict"] == "ok"
    assert not json.loads(kfjob(space, tmp_path, "list", "-o", "json").stdout)  # it created no job


def test_submitter_has_every_right_that_kfjob_uses(space, tmp_path):
    code, findings = run_doctor(space, tmp_path, "submitter")
    assert code == 0, findings
    assert findings["rights"][0]["verdict"] == "ok"
    assert findings["webhook"][0]["message"] == "answers"
    assert "not allowed to list nodes" in findings["nodes"][0]["message"]


def test_missing_rights_come_with_the_command_that_grants_them(space, tmp_path):
    code, findings = run_doctor(space, tmp_path, "nobody")
    assert code == 1
    needed, useful = findings["rights"]
    assert (needed["verdict"], useful["verdict"]) == ("fail", "warn")
    assert "pytorchjobs.kubeflow.org: create, get, list, watch, update, patch, delete" in needed["message"]
    assert "pods/log: get" in needed["message"]
    assert f"kubectl apply -n {space.name} -f manifests/rbac/submitter.yaml" in needed["remedy"]
    assert "events" in useful["message"]
