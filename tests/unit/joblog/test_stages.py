"""What a job does before its first progress line."""

from msgspec.structs import replace

from kfjob.cli.view_json import view_json
from kfjob.cli.view_text import status_text
from kfjob.joblog.events import Event, PodPhase, Tick
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.joblog.view.stages import find_stage
from tests.unit.api import script

CONFIG = ObserveConfig(workers=("train-worker-0", "train-worker-1"), rendezvous="c10d")
PREFIX = "I1121 06:37:49.644000 1 torch/distributed/launcher/api.py:257]"


def launch(index: int) -> list[Event]:
    texts = ("Starting elastic_operator with launch configs:", "  entrypoint               : train.py", "  min_nodes    : 2")
    return [script.line(index, f"{PREFIX} {text}", 3) for text in texts]


NOW = Tick(time=0)


def stage(*events: Event, tick: Tick | None = NOW) -> str:
    return str(find_stage(reduce_all(JobView(config=CONFIG), (*events, *([tick] if tick else ())))))


def test_job_whose_logs_are_still_read_has_no_stage():
    assert stage(*script.STARTING, *launch(1), tick=None) == ""
    assert stage(*script.STARTING, *launch(1), tick=Tick(time=0, is_current=False)) == ""


def test_job_that_has_trained_has_no_stage_whatever_its_pods_do_later():
    view = reduce_all(JobView(config=CONFIG), (*script.TRAINING, Tick(time=0)))
    view = reduce_all(replace(view, training=Training()), launch(0))
    assert str(find_stage(view)) == ""
    restarted = [pod.in_container("new") for pod in view.pods.values()]
    for pod in restarted:
        view = replace(view, pods=view.pods.with_pod(pod))
    assert str(find_stage(reduce_all(view, launch(0)))) == ""


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
    assert stage(*joined) == "the workers have started; the program has printed nothing yet"
    agent = script.line(0, f"{PREFIX} [default] Starting worker group", 6)
    assert stage(*joined, agent) == "the workers have started; the program has printed nothing yet"
    lines = [script.line(0, f"seen {number} of the data", 7) for number in range(180)]
    assert "the program has printed 180 lines; none is read as progress" in stage(*joined, agent, *lines)
    assert stage(*joined, *lines[:3]) == "the program has printed 3 lines, no progress yet"
    late = stage(*joined, *lines[:3], script.line(0, "another", 200))
    assert late == "the program has printed 4 lines; none is read as progress"
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


def test_an_agent_that_has_given_up_has_no_stage():
    printed = [*script.STARTING, *script.block(0, 0, 5), *script.block(1, 1, 5), script.line(0, "loading", 6)]
    gave_up = script.line(0, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", 9)
    assert stage(*printed) == "the program has printed 1 line, no progress yet"
    assert stage(*printed, gave_up) == ""


def test_lines_of_a_program_without_an_agent_are_counted():
    lines = [script.line(index, f"seen {number} of the data", 7) for number in range(90) for index in (0, 1)]
    assert "the program has printed 180 lines; none is read as progress" in stage(*script.STARTING, *lines)
    agent = script.line(0, f"{PREFIX} [default] Starting worker group", 6)
    assert stage(*script.STARTING, agent, *lines) == ""


FINISHED = (
    f"{PREFIX.replace('launcher', 'elastic/agent/server')} [default] worker group successfully finished. Waiting 300 seconds"
)


def test_running_job_names_the_pods_that_have_ended_and_those_it_waits_for():
    advice = "if the program still needs the ended ranks, `kfjob stop JOB` ends the job"
    text = f"the training processes of `train-worker-0` have ended; waiting for `train-worker-1`; {advice}"
    assert stage(*script.TRAINING, script.line(0, FINISHED, 90)) == text
    ended = script.pod(0, PodPhase.SUCCEEDED, exit_code=0)
    assert stage(*script.TRAINING, ended) == text
    both = (*script.TRAINING, ended, script.line(1, FINISHED, 91))
    assert stage(*both) == ""
    again = (*script.TRAINING, script.line(0, FINISHED, 90), *script.block(0, 0, 95))
    assert stage(*again) == ""  # an elastic job: the agent has joined another round


def test_status_has_the_pods_that_a_job_waits_for_as_data():
    view = reduce_all(JobView(config=CONFIG), [*script.TRAINING, script.line(0, FINISHED, 90)])
    assert view_json(view)["waiting"] == {"ended": ("train-worker-0",), "waiting_for": ("train-worker-1",)}
    text = status_text(view, name="train", now=0)
    assert "stage      the training processes of `train-worker-0` have ended; waiting for `train-worker-1`" in text
    assert view_json(reduce_all(JobView(config=CONFIG), script.TRAINING))["waiting"] is None
