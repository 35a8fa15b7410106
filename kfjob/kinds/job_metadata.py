"""JobPlan -> the metadata of a job: the user's labels and annotations, and what kfjob records of the launch."""

from __future__ import annotations

from kfjob.base.common_types import JsonObject
from kfjob.joblog.observe_config import encode
from kfjob.kinds.pod_template import own_labels, sort_keys
from kfjob.objects import api_objects
from kfjob.plan import JobPlan
from kfjob.spec.job import SPEC_VERSION


def compile_metadata(plan: JobPlan) -> JsonObject:
    """Return the metadata of the job itself, of whatever kind it is."""
    return {
        "name": plan.name,
        "namespace": plan.namespace,
        "labels": _labels(plan),
        "annotations": _annotations(plan),
    }


def _labels(plan: JobPlan) -> dict[str, str]:
    labels = sort_keys(plan.spec.labels) | sort_keys(plan.spec.job_labels)
    labels |= {**own_labels(plan), api_objects.LABEL_SPEC_HASH: plan.spec_hash}
    if plan.scheduling.queue:
        labels[api_objects.LABEL_KUEUE_QUEUE] = plan.scheduling.queue
    if plan.scheduling.queue_priority:
        labels[api_objects.LABEL_KUEUE_PRIORITY] = plan.scheduling.queue_priority
    return labels


def _annotations(plan: JobPlan) -> dict[str, str]:
    annotations = sort_keys(plan.spec.annotations) | sort_keys(plan.spec.job_annotations)
    if hyperpod := plan.scheduling.hyperpod:
        annotations[api_objects.ANNOTATION_HYPERPOD_AUTO_RESUME] = str(hyperpod.auto_resume).lower()
        annotations[api_objects.ANNOTATION_HYPERPOD_RETRIES] = str(hyperpod.max_retries)
    return annotations | {
        api_objects.ANNOTATION_SPEC_VERSION: str(SPEC_VERSION),
        api_objects.ANNOTATION_SPEC: plan.spec_json,
        api_objects.ANNOTATION_OBSERVE_CONFIG: encode(plan.observe_config),
    }
