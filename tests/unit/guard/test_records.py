"""The record of a relaunch holds the objects of the next launch, and a damaged one counts as none."""

import base64
import gzip
import tracemalloc

import pytest

from kfjob.backends.base import JobRef
from kfjob.guard.records import make_relaunch_record, read_relaunch_record

REF = JobRef(backend="kubernetes", namespace="n", name="train", uid="u1", job_kind="PyTorchJob")
METADATA = {"name": "train", "namespace": "n"}
JOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": METADATA}
OBJECTS = ({**JOB, "metadata": {**METADATA, "annotations": {"kfjob.dev/spec": "x" * 400_000}}},)


def test_record_is_read_back_and_fits_into_the_annotations_of_an_object():
    record = make_relaunch_record(REF, OBJECTS)
    assert read_relaunch_record(record) == ("u1", list(OBJECTS))
    assert sum(len(value) for value in record["metadata"]["annotations"].values()) < 256 * 1024


@pytest.mark.parametrize("text", ["", "no base64", "e30=", "H4sIAAAAAAAA"])
def test_damaged_record_holds_nothing(text):
    record = make_relaunch_record(REF, OBJECTS)
    record["metadata"]["annotations"]["kfjob.dev/next-launch"] = text
    assert read_relaunch_record(record) == ("", [])


def encode(data):
    return base64.b64encode(gzip.compress(data)).decode()


def make(kind, namespace="n", api_version="v1"):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}}


def test_record_may_hold_the_etcd_and_the_runtime_of_a_job():
    runtime = make("TrainingRuntime", api_version="trainer.kubeflow.org/v1alpha1")
    objects = (runtime, JOB, make("Pod"), make("Service"))
    assert read_relaunch_record(make_relaunch_record(REF, objects)) == ("u1", list(objects))


@pytest.mark.parametrize(
    "objects",
    [
        (JOB, make("RoleBinding", api_version="rbac.authorization.k8s.io/v1")),
        (JOB, make("Pod", namespace="kube-system")),
        ({**JOB, "metadata": {"name": "other", "namespace": "n"}},),
        (JOB, JOB),
        (make("Pod"),),
        (),
        ("a",),
        (5,),
    ],
    ids=["right", "namespace", "name", "two jobs", "no job", "nothing", "text", "number"],
)
def test_record_that_somebody_has_written_creates_nothing_else(objects):
    assert read_relaunch_record(make_relaunch_record(REF, objects)) == ("", [])


@pytest.mark.parametrize(
    "data", [b"x" * 10, encode(b"[" + b" " * (1 << 28) + b"]").encode(), encode(b"5").encode()], ids=["no gzip", "bomb", "5"]
)
def test_damaged_data_is_no_error_and_needs_little_memory(data):
    record = make_relaunch_record(REF, (JOB,))
    record["metadata"]["annotations"]["kfjob.dev/next-launch"] = data.decode()
    tracemalloc.start()
    assert read_relaunch_record(record) == ("", [])
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def test_flipped_byte_holds_nothing():
    record = make_relaunch_record(REF, (JOB,))
    data = bytearray(base64.b64decode(record["metadata"]["annotations"]["kfjob.dev/next-launch"]))
    data[20] ^= 0xFF
    record["metadata"]["annotations"]["kfjob.dev/next-launch"] = base64.b64encode(data).decode()
    assert read_relaunch_record(record) == ("", [])
