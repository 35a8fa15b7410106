from __future__ import annotations

from kfjob.cluster import requests
from tests.pytorchjobs import KIND

SECOND = 1_000_000_000
MANIFEST = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "llama", "namespace": "ml"}}


def test_a_create_is_strict_and_not_repeatable():
    request = requests.create(MANIFEST)
    assert (request.method, request.path, request.name) == ("POST", "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs", "llama")
    assert dict(request.query) == {"fieldManager": "kfjob", "fieldValidation": "Strict"}
    assert request.body is MANIFEST
    assert not request.repeatable


def test_an_apply_is_server_side():
    request = requests.apply(MANIFEST)
    assert (request.method, request.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert request.path == "/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/llama"
    assert dict(request.query)["force"] == "true"
    assert request.repeatable


def test_a_delete_is_of_this_very_job():
    request = requests.delete_job(KIND, "ml", "llama", "u-1")
    assert request.body is not None
    assert request.body["propagationPolicy"] == "Foreground"
    assert request.body["preconditions"] == {"uid": "u-1"}


def test_a_log_request_has_all_options():
    request = requests.pod_log(
        "ml", "p", container="pytorch", tail=3, since=1_795_253_606 * SECOND + 5, previous=True, follow=True
    )
    assert request.path == "/api/v1/namespaces/ml/pods/p/log"
    assert dict(request.query) == {
        "container": "pytorch",
        "timestamps": "true",
        "tailLines": "3",
        "sinceTime": "2026-11-21T09:33:26Z",
        "previous": "true",
        "follow": "true",
    }
    assert dict(requests.pod_log("ml", "p", container="c").query) == {"container": "c", "timestamps": "true"}


def test_a_watch_goes_on_where_the_list_ended():
    selection = requests.select_dependents(KIND, "pods", "ml", "llama")
    assert dict(selection.list_request().query) == {"labelSelector": "training.kubeflow.org/job-name=llama"}
    watching = dict(selection.watch_request("41").query)
    assert watching["resourceVersion"] == "41"
    assert watching["allowWatchBookmarks"] == "true"
    assert watching["labelSelector"] == "training.kubeflow.org/job-name=llama"
    assert dict(requests.select_object("pods", "ml", "p").list_request().query) == {"fieldSelector": "metadata.name=p"}


def test_a_name_cannot_leave_its_place_in_the_path():
    assert requests.get("pods", "ml/../x", "a b?c").path == "/api/v1/namespaces/ml%2F..%2Fx/pods/a%20b%3Fc"
