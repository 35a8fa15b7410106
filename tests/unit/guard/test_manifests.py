"""What `kfjob guard install` creates, and the kustomization of the same objects."""

from typing import Any

import yaml

from kfjob.cli.commands import run
from kfjob.guard.manifests import IMAGE, RULES, GuardOptions, make_objects
from kfjob.kinds.registry import KINDS
from tests.role import MANIFESTS, list_rights, read_role

FOLDER = MANIFESTS / "guard"


def test_kustomization_has_the_objects_of_install():
    assert list(yaml.safe_load_all((FOLDER / "guard.yaml").read_text())) == make_objects(GuardOptions())
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert kustomization["resources"] == ["guard.yaml"]
    assert [image["name"] for image in kustomization["images"]] == [IMAGE]


def test_pod_passes_the_restricted_standard():
    pod = make_objects(GuardOptions())[-1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_archive_claim_replaces_the_volume_of_the_pod():
    pod = make_objects(GuardOptions(image="guard:1", claim="logs"), namespace="team")[-1]["spec"]["template"]["spec"]
    assert pod["volumes"][0] == {"name": "state", "persistentVolumeClaim": {"claimName": "logs"}}
    assert pod["containers"][0]["image"] == "guard:1"


def test_addresses_of_notifications_come_from_a_secret():
    def list_variables(**options):
        (container,) = make_objects(GuardOptions(**options))[-1]["spec"]["template"]["spec"]["containers"]
        return {entry["name"]: entry for entry in container["env"]}

    assert "KFJOB_NOTIFY" not in list_variables()
    source = {"secretKeyRef": {"name": "chat", "key": "KFJOB_NOTIFY"}}
    variables = list_variables(notify_secret="chat")  # noqa: S106 - the name of a Secret
    assert variables["KFJOB_NOTIFY"]["valueFrom"] == source


def test_guard_reads_no_secrets():
    resources = {resource for _, names, _ in RULES for resource in names}
    assert not resources & {"secrets", "configmaps", "nodes"}


def test_role_of_submitters_has_every_right_of_the_kinds():
    needed = {item for kind in KINDS.values() for item in (*kind.permissions, *kind.useful_permissions)}
    assert needed <= list_rights(read_role("submitter"))


def test_archive_in_s3_is_a_variable_of_the_guard(monkeypatch, capsys):
    def install(*argv: str) -> dict[str, Any]:
        options = ("-n", "team", "--image", "guard:1", "--dry-run", *argv)
        assert run(["guard", "install", *options]) == 0
        *_, deployment = yaml.safe_load_all(capsys.readouterr().out)
        container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
        return container

    archive = {"name": "KFJOB_ARCHIVE", "value": "s3://logs/kfjob"}
    container = install("--archive", "s3://logs/kfjob/", "--archive-secret", "s3-key")
    assert archive in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "s3-key"}}]
    assert "envFrom" not in install()
    monkeypatch.setenv("KFJOB_ARCHIVE", "s3://logs/kfjob")
    assert archive in install()["env"]
    assert run(["guard", "install", "--image", "guard:1", "--dry-run", "--archive", "/folder"]) == 2
    assert "`/folder` is not an address of S3" in capsys.readouterr().err
