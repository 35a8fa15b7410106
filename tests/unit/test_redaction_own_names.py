"""Names of fields and of objects are no secrets, and the user's credentials are in no error of a server."""

from __future__ import annotations

import json

import pytest

from kfjob.cluster.errors import make_error
from kfjob.cluster.requests import Request
from kfjob.redaction import REDACTED, Redactor, remember_credential

EVENTS = """
MountVolume.SetUp failed for volume "hf-token" : secret "hf-token" not found
MountVolume.SetUp failed for volume "hf-token" : configmap "hf-token" not found
MountVolume.SetUp failed for volume "api-key" : failed to sync secret cache: timed out waiting for the condition
MountVolume.SetUp failed for volume "hf-token" : references non-existent secret key: token
mounting 'hf-token' : secret mount
volume 'wandb-api-key': PVC pending
Warning: FailedMount: volume "hf-token" : object "default"/"hf-token" not registered
--key value --token-budget 100 --keys a,b
"""
VALUE = "Zq81xxPlum7W"
TEXTS = (
    f"https://{VALUE}@github.com/a/b",
    f'wandb.login(key="{VALUE}")',
    f'huggingface_hub.login("{VALUE}")',
    f"secret_key_base: {VALUE}",
)


@pytest.mark.parametrize("line", EVENTS.strip().splitlines())
def test_the_name_of_an_object_is_no_name_of_a_secret(line: str):
    assert Redactor().text(line) == line


def test_an_assignment_in_the_quotes_of_an_object_is_read():
    assert VALUE not in Redactor().text(f"there is no job `DB_PASS={VALUE}` in namespace `default`")


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_of_logins_are_hidden(text: str):
    assert VALUE not in Redactor().text(text)


@pytest.mark.parametrize("text", ["https://alice-smith01@github.com/a", 'login("alice")', "login('user name')"])
def test_names_of_users_stay(text: str):
    assert Redactor().text(text) == text


def test_a_secret_that_is_a_word_removes_no_field():
    fields = {"phase": 1, "pods": 2, "master": [{"phase": 3}], "step_phase": 4}
    assert Redactor(["phase", "pods", "master"]).value(fields) == fields


def test_equal_names_are_numbered():
    redacted = Redactor(["hunter2-xyz", "other9-xyz"]).value({"hunter2-xyz": 1, "other9-xyz": 2, "tokens": {"hunter2-xyz": 3}})
    assert redacted == {REDACTED: 1, f"{REDACTED} 2": 2, "tokens": {REDACTED: 3}}


@pytest.mark.parametrize("status", [400, 401, 403, 409, 500])
def test_an_error_of_the_server_does_not_repeat_credentials(status: int):
    remember_credential("Q9xx-zz-Zebra7plain")
    message = f'User "x": bad token Q9xx-zz-Zebra7plain of DB_PASSWORD={VALUE}'
    body = json.dumps({"kind": "Status", "message": message, "details": {"causes": [{"message": message}]}}).encode()
    text = str(
        make_error(Request(method="GET", path="/", verb="get", resource="pods", namespace="default", name="a"), status, body)
    )
    assert "Zebra7" not in text
    assert VALUE not in text
