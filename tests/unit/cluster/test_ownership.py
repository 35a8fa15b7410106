from __future__ import annotations

from typing import Any

from kfjob.cluster.live_objects import list_job_changes
from kfjob.cluster.ownership import owned_keys, take_over_patch
from tests.pytorchjobs import KIND


def entry(manager: str, operation: str, *labels: str, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {".": {}, **{f"f:{label}": {} for label in labels}}}}
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def job(*book: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7", "managedFields": list(book), "labels": labels}, "spec": {}}


STATUS = entry("kfjob", "Update", subresource="status")
OPERATOR = entry("training-operator", "Update", "theirs")


def test_fields_of_the_create_are_taken_over_once():
    live = job(entry("kfjob", "Update", "a", "b"), OPERATOR, STATUS)
    book, version = take_over_patch(live)
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert book["value"] == [OPERATOR, STATUS, entry("kfjob", "Apply", "a", "b")]
    assert take_over_patch(job(*book["value"])) == []
    assert take_over_patch({"metadata": {}}) == []


def test_applied_fields_are_kept():
    live = job(entry("kfjob", "Apply", "b", "c", time="t"), entry("kfjob", "Update", "a", "b"))
    book, _ = take_over_patch(live)
    (ours,) = book["value"]
    assert ours["time"] == "t"
    assert owned_keys(job(ours), "labels") == {"a", "b", "c"}
    assert owned_keys(live, "labels") == {"a", "b", "c"}
    assert live["metadata"]["managedFields"][0] == entry("kfjob", "Apply", "b", "c", time="t")  # the input is left alone


def test_only_our_labels_can_be_missing():
    live = job(entry("kfjob", "Update", "ours"), OPERATOR, ours="1", theirs="2")
    wanted = {"metadata": {"labels": {"new": "3"}}, "spec": {}}
    found = [(change.path, change.live, change.desired, change.in_place) for change in list_job_changes(KIND, live, wanted)]
    assert found == [("metadata.labels.new", None, "3", True), ("metadata.labels.ours", "1", None, True)]
