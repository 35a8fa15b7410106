"""What a job does before its first progress line."""

from kfjob.events import Event, PodPhase
from kfjob.observe.startup import describe_startup
from kfjob.observe.view import JobView, reduce_all
from kfjob.spec.observe_config import ObserveConfig
from tests.unit.api import script

CONFIG = ObserveConfig(workers=("train-worker-0", "train-worker-1"), rendezvous="c10d")
PREFIX = "I1121 06:37:49.644000 1 torch/distributed/launcher/api.py:257]"


def launch(index: int) -> list[Event]:
    texts = ("Starting elastic_operator with launch configs:", "  entrypoint               : train.py", "  min_nodes    : 2")
    return [script.line(index, f"{PREFIX} {text}", 3) for text in texts]


def stage(*events: Event) -> str:
    return describe_startup(reduce_all(JobView(config=CONFIG), events))


def test_pods_that_wait_are_counted():
    assert stage(*script.STARTING[:3]) == "waiting for pods: 0 of 2 running"
    assert stage(*script.STARTING[:5]) == "waiting for pods: 1 of 2 running"


def test_a_silent_pod_may_import_torch():
    assert "printed nothing" in stage(*script.STARTING)


def test_agents_that_have_started_are_counted():
    assert stage(*script.STARTING, *launch(1)) == "rendezvous: 1 of 2 agents have started"
    both = (*script.STARTING, *launch(0), *launch(1))
    assert stage(*both) == "rendezvous: 2 of 2 agents have started"
    assert stage(*both, *script.block(0, 0, 5)) == "rendezvous: 2 of 2 agents have started, 1 joined"
    joined = (*both, *script.block(0, 0, 5), *script.block(1, 1, 5))
    assert stage(*joined) == "the workers have started; the program has printed no progress yet"
    assert "imports" not in stage(*joined, script.line(0, "epoch 1 begins", 6))  # the program may be far beyond its imports


def test_kfjobs_trainer_says_more():
    start = (
        "2026-11-21 06:37:50 I [train.py:18] Start llama with 1000 parameters, strategy fsdp, world size 2, "
        "global batch 8 samples, 20 steps"
    )
    assert "the trainer has built the model" in stage(*script.STARTING, script.line(0, start, 6))


def test_progress_and_the_end_of_the_job_have_no_stage():
    assert stage(*script.TRAINING) == stage(*script.SUCCEEDED) == stage() == ""
    assert stage(*script.STARTING, script.pod(0, PodPhase.FAILED)) == ""


def test_a_program_without_an_agent_that_prints_has_no_stage():
    assert stage(*script.STARTING, script.line(0, "hello", 6)) == ""
