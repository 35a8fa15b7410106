"""Run the command `doctor`, and the check of the AWS identity (moto stands in for STS)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from moto import mock_aws
from msgspec.structs import replace

from kfjob.api.doctor import aws
from kfjob.api.doctor.examine import examine
from kfjob.api.settings import Settings
from kfjob.cli.commands import run
from kfjob.cluster import client
from tests.hostile_server import Answer, serve
from tests.unit.conftest import KUBECONFIG_OF_A_PORT


@pytest.fixture(autouse=True)
def _empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KFJOB_BACKEND", "KFJOB_CONTEXT", "KFJOB_NAMESPACE", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KFJOB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.chdir(tmp_path)


def test_only_named_checks_run(capsys):
    assert run(["doctor", "settings", "archive", "-o", "json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert [(finding["name"], finding["verdict"]) for finding in findings] == [("settings", "ok"), ("archive", "ok")]
    assert all(finding["message"] and not finding["remedy"] for finding in findings)


def test_failed_check_is_exit_code_1_with_a_remedy(capsys):
    assert run(["doctor", "kubeconfig", "--backend", "kubernetes"]) == 1
    assert "hint: aws eks update-kubeconfig" in capsys.readouterr().out


@pytest.mark.parametrize("listening", [False, True], ids=["refused", "silent"])
def test_unreachable_cluster_is_a_finding_after_the_contact_time(tmp_path, listening, capsys, monkeypatch):
    monkeypatch.setattr(client, "READS", replace(client.READS, start_seconds=1.2))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:
            server.listen()
        (tmp_path / "kubeconfig").write_text(KUBECONFIG_OF_A_PORT.format(port=server.getsockname()[1]))
        code = run(["doctor", "api server", "rights", "-o", "json"])
    (finding,) = json.loads(capsys.readouterr().out)
    assert (code, finding["name"], finding["verdict"]) == (1, "api server", "fail")
    assert "does not answer" in finding["message"]


def test_aws_identity_and_region_are_reported(monkeypatch):
    (finding,) = aws.check_identity(None)
    assert (finding.verdict, finding.remedy) == ("warn", aws.LOG_IN)
    with mock_aws():
        (no_region,) = aws.check_identity(None)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        (finding,) = aws.check_identity(None)
    assert (no_region.verdict, "no region" in no_region.message) == ("warn", True)
    assert finding.verdict == "ok"
    assert "account 123456789012" in finding.message
    assert finding.message.endswith("region eu-west-1")


def test_silent_sts_is_a_warning_after_one_request(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setattr(aws, "TIMEOUT_SECONDS", 0.5)
    with serve(lambda hostile, _: Answer(raw=hostile.hang())) as hostile:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", hostile.url)
        (finding,) = aws.check_identity(None)
        assert len(hostile.received) == 1
    assert finding.verdict == "warn"
    assert "Read timeout" in finding.message
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    (finding,) = aws.check_identity(None)
    assert "Could not connect" in finding.message


def test_boto3_is_imported_only_for_aws():
    program = (
        "import sys; from kfjob.cli.commands import run; code = run(sys.argv[1:]); "
        "print(code, *sorted({name.partition('.')[0] for name in sys.modules} & {'boto3', 'torch', 'kubernetes'}))"
    )
    command = [sys.executable, "-c", program, "doctor", "torch", "disk"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("backend", [None, "local"])
def test_a_named_check_of_the_cluster_says_that_there_is_none(monkeypatch, tmp_path, backend):
    monkeypatch.setattr("kfjob.backends.kubeconfig.find_current_context", lambda *_: None)
    findings = list(examine(Settings(backend=backend, state=tmp_path), only=frozenset({"rights", "webhook"})))
    assert [(finding.name, finding.verdict) for finding in findings] == [("webhook", "fail"), ("rights", "fail")]
    assert all(finding.message.startswith("not checked: ") and finding.remedy for finding in findings)


def test_every_named_check_has_a_finding(monkeypatch, tmp_path):
    monkeypatch.setattr("kfjob.backends.kubeconfig.find_current_context", lambda *_: None)
    names = frozenset({"deepspeed", "envsubst", "disk"})
    assert {finding.name for finding in examine(Settings(state=tmp_path), only=names)} == names
