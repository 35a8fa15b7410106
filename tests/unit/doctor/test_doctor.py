"""The command, and who we are to AWS (moto stands in for STS)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from moto import mock_aws

from kfjob.api.doctor import aws
from kfjob.backends.kubernetes import client
from kfjob.cli.main import run
from tests.unit.conftest import KUBECONFIG_OF_A_PORT

KFJOB = str(Path(sys.executable).with_name("kfjob"))


@pytest.fixture(autouse=True)
def _nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KFJOB_BACKEND", "KFJOB_CONTEXT", "KFJOB_NAMESPACE", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KFJOB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)


def test_the_named_checks_are_made_and_no_others(capsys):
    assert run(["doctor", "python", "kfjob", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["verdict"]) for one in found] == [("python", "ok"), ("kfjob", "ok")]


def test_an_unknown_check_is_told_with_those_that_there_are(capsys):
    assert run(["doctor", "nodez"]) == 2
    assert "`nodez`" in (said := capsys.readouterr().err)
    assert "nodes" in said


def test_what_fails_is_exit_code_1_with_its_remedy(capsys):
    assert run(["doctor", "kubeconfig", "--backend", "kubernetes"]) == 1
    assert "hint: aws eks update-kubeconfig" in capsys.readouterr().out


@pytest.mark.parametrize("listening", [False, True], ids=["refused", "silent"])
def test_a_cluster_that_does_not_answer_is_a_finding_within_seconds(tmp_path, listening, capsys, monkeypatch):
    monkeypatch.setattr(client, "CONTACT_SECONDS", 2.0)  # tests/unit/api/test_unreachable.py waits for the whole of it
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:
            server.listen()
        (tmp_path / "kubeconfig").write_text(KUBECONFIG_OF_A_PORT.format(port=server.getsockname()[1]))
        began = time.monotonic()
        code = run(["doctor", "api server", "rights", "-o", "json"])
    (finding,) = json.loads(capsys.readouterr().out)
    assert (code, finding["name"], finding["verdict"]) == (1, "api server", "fail")
    assert "does not answer" in finding["said"]
    assert time.monotonic() - began < 20


def test_aws_identity(monkeypatch):
    (nobody,) = aws.identity(None)
    assert (nobody.verdict, nobody.remedy) == ("warn", aws.LOG_IN)
    with mock_aws():
        (without,) = aws.identity(None)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        (finding,) = aws.identity(None)
    assert (without.verdict, "no region" in without.said) == ("warn", True)
    assert finding.verdict == "ok"
    assert "account 123456789012" in finding.said
    assert finding.said.endswith("region eu-west-1")


def test_an_sts_that_is_not_there_is_told_soon(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    began = time.monotonic()
    (finding,) = aws.identity(None)
    assert finding.verdict == "warn"
    assert "Could not connect" in finding.said
    assert time.monotonic() - began < 30


def test_boto3_is_imported_only_for_aws():
    program = (
        "import sys; from kfjob.cli.main import run; code = run(sys.argv[1:]); "
        "print(code, *sorted({name.partition('.')[0] for name in sys.modules} & {'boto3', 'torch', 'kubernetes'}))"
    )
    words = [sys.executable, "-c", program, "doctor", "python", "torch", "disk"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"
