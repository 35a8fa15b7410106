"""The pod whose output a display shows, and its lines."""

from collections.abc import Iterable

from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobPhase, LinesSkipped, PodPhase, Tick
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.program_output import OLD_LINES, OutputLine, ProgramOutput, find_printing_pod
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from tests.unit.api import script

CONFIG = ObserveConfig(workers=("train-worker-0", "train-worker-1"), rendezvous="c10d")


def show(events: Iterable[Event], output: ProgramOutput, config: ObserveConfig = CONFIG) -> list[OutputLine]:
    view, shown = JobView(config=config), []
    for event in events:
        view = reduce(view, event)
        shown += output.feed(view, event)
    return shown + output.flush()


def test_lines_of_one_pod_are_shown_and_no_agents():
    events = [*script.STARTING, *script.block(0, 0, 5), *script.block(1, 1, 5)]
    events += [script.line(index, f"hello {index}", 6) for index in (1, 0)]
    assert show(events, ProgramOutput()) == [OutputLine("hello 0")]


def test_pod_that_runs_stands_for_the_job_before_one_that_has_ended():
    view = JobView(config=ObserveConfig())
    assert find_printing_pod(view) == ""
    for event in (script.pod(0, PodPhase.RUNNING), script.pod(1, PodPhase.RUNNING)):
        view = reduce(view, event)
    assert find_printing_pod(view) == "train-worker-0"
    assert find_printing_pod(reduce(view, script.pod(0, PodPhase.FAILED))) == "train-worker-1"


TRAINER_LINES = (
    "2026-11-21 07:10:48 I [t.py:1] Start a with 10 parameters, strategy ddp, world size 1, global batch 1 samples, 3 steps",
    "2026-11-21 07:10:49 I [train.py:247] Batch 1 Loss: 7.98641, Speed: 0.26 samples/sec, lr: 0.000100",
    "2026-11-21 07:10:49 I [train.py:248] Step 1 tokens/s: 33, grad norm: 4.6844, peak memory: 0.79 GiB",
    "2026-11-21 07:10:50 W [hub.py:30] the tokenizer has no chat template",
    "2026-11-21 07:10:51 I [run.py:49] Outcome finished step 3 loss 7.91988 checkpoint none",
)  # fmt: skip


def test_reports_of_the_own_trainer_are_shown_once_as_progress_and_news():
    events = [*script.STARTING, *(script.line(0, text, 6 + index) for index, text in enumerate(TRAINER_LINES))]
    own = ObserveConfig(workers=CONFIG.workers, rendezvous="c10d", trainer="kfjob")
    assert [line.text for line in show(events, ProgramOutput(), own)] == [TRAINER_LINES[3]]
    started_by_a_command = [line.text for line in show(events, ProgramOutput())]  # its progress is that of any program
    assert started_by_a_command == [TRAINER_LINES[1], TRAINER_LINES[3]]


def test_before_any_evidence_the_lowest_pod_is_shown():
    view = JobView()
    for event in (script.pod(1, PodPhase.RUNNING), script.pod(0, PodPhase.RUNNING)):
        view = reduce(view, event)
    assert find_printing_pod(view) == "train-worker-0"


def test_pods_are_ordered_by_their_numbers_before_anything_shows_which_one_prints():
    view = JobView()
    for event in (script.pod(10, PodPhase.RUNNING), script.pod(2, PodPhase.RUNNING)):
        view = reduce(view, event)
    assert find_printing_pod(view) == "train-worker-2"


def test_the_pod_with_rank_0_is_shown():
    events = [*script.STARTING, *script.block(0, 1, 5), *script.block(1, 0, 5), script.line(0, "a", 6), script.line(1, "b", 6)]
    assert show(events, ProgramOutput()) == [OutputLine("b")]


def test_lines_from_before_the_handover_are_shown():
    events = [*script.STARTING, script.line(0, "config", 5), script.line(1, "config of 1", 4)]
    events += [script.line(1, f"step {step} loss {3 - step / 10}", 6 + step) for step in range(10)]
    shown = show([*events, Tick(time=script.START + 17 * SECOND)], ProgramOutput())
    texts = [f"step {step} loss {3 - step / 10}" for step in range(10)]
    assert shown == [OutputLine("config"), OutputLine(texts[0], "train-worker-1"), *(OutputLine(text) for text in texts[1:])]


def test_handover_names_the_next_pod():
    events = [*script.STARTING, *script.block(0, 0, 5), *script.block(1, 1, 5), script.line(0, "from 0", 6)]
    events += [script.pod(0, PodPhase.FAILED, exit_code=1), script.line(1, "from 1", 8), script.line(1, "more", 9)]
    assert show(events, ProgramOutput()) == [OutputLine("from 0"), OutputLine("from 1", "train-worker-1"), OutputLine("more")]


def test_progress_of_another_pod_takes_over_from_one_that_prints_none():
    hello, progress = script.line(0, "hello", 9), [script.progress(1, step, 8.0 - step) for step in range(1, 4)]
    lines = show([*script.STARTING, hello, *progress], ProgramOutput())
    assert [line.pod for line in lines] == ["", "train-worker-1", "", ""]


def test_the_pod_that_gets_rank_0_takes_over_at_once():
    events = [*script.STARTING, *script.block(0, 0, 4), *script.block(1, 1, 4), script.line(0, "round 1", 5)]
    events += [*script.block(0, 1, 6), *script.block(1, 0, 6), script.line(1, "round 2", 7), script.line(0, "not shown", 7)]
    assert show(events, ProgramOutput()) == [OutputLine("round 1"), OutputLine("round 2", "train-worker-1")]


def test_a_pod_that_goes_on_printing_is_kept_though_every_rank_prints_progress():
    events = [*script.STARTING]
    events += [script.progress(index, step, 8.0 - step) for step in range(1, 5) for index in (0, 1)]
    assert {line.pod for line in show(events, ProgramOutput())} == {""}
    assert len(show(events, ProgramOutput())) == 4


def test_of_an_old_log_the_last_lines_are_shown_first():
    events = [*script.STARTING, *(script.line(0, f"line {number}", number) for number in range(100))]
    since = script.START + 98 * SECOND
    assert [line.text for line in show(events, ProgramOutput(since=since))] == [f"line {n}" for n in range(99 - OLD_LINES, 100)]


def test_old_lines_are_shown_when_nothing_else_comes():
    output = ProgramOutput(since=script.START + 1000 * SECOND)
    view, shown = JobView(config=CONFIG), []
    for event in [*script.STARTING, script.line(0, "hello", 5), Tick(time=script.START + 6 * SECOND)]:
        view = reduce(view, event)
        shown = output.feed(view, event)
    assert shown == [OutputLine("hello")]


LIBRARY = "/venv/lib/python3.12/site-packages/torch/utils/data.py:3: UserWarning: This DataLoader will create 8 processes"


def show_texts(*texts: str) -> tuple[list[str], int]:
    output = ProgramOutput()
    events = [*script.STARTING, *script.block(0, 0, 5), *(script.line(0, text, 6 + i) for i, text in enumerate(texts))]
    return [line.text for line in show(events, output)], output.warnings.count


def test_warnings_of_libraries_are_left_out_and_counted():
    noise = [
        "[W1121 06:37:49.644123 socket.cpp:752] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
        "[rank0]:[W1121 06:37:49.644123678 ProcessGroupNCCL.cpp:1561] Warning: destroy_process_group() was not called",
        "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1",
        "W1121 06:37:49.644000 71 site-packages/torch/_inductor/utils.py:1137] [0/0] Not enough SMs to use max_autotune_gemm",
        LIBRARY,
        "  warnings.warn(",
        "2026-11-21 06:37:49.644000: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.",
    ]
    assert show_texts("hello", *noise, "  indented", "bye") == (["hello", "  indented", "bye"], len(noise))


def test_the_warning_of_torchs_old_launcher_is_left_out_whole():
    noise = [
        "/v/site-packages/torch/distributed/launch.py:207: FutureWarning: The module torch.distributed.launch is deprecated",
        "and will be removed in future. Use torchrun.",
        "Note that --use-env is set by default in torchrun.",
        "If your script expects `--local-rank` argument to be set, please",
        "change it to read from `os.environ['LOCAL_RANK']` instead. See ",
        "https://pytorch.org/docs/stable/distributed.html#launch-utility for ",
        "further instructions",
        "",
        "  main()",
    ]
    assert show_texts(*noise, "GPU_Count: 4", "further instructions") == (["GPU_Count: 4", "further instructions"], len(noise))


def test_warnings_of_the_program_and_errors_stay():
    texts = [
        "/work/train.py:4: UserWarning: few samples",
        "  warnings.warn('few samples')",
        "[E1121 06:37:49.644123 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(",
        "Warning: the validation data is empty",
        "step 1 loss 2.5",
    ]
    assert show_texts(*texts) == (texts, 0)


def test_warning_that_is_a_cause_stays():
    text = "[W1121 06:37:49.644123 x.cpp:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    assert show_texts(text) == ([text], 0)


def test_lines_that_come_too_late_are_counted():
    output = ProgramOutput()
    shown = show([*script.STARTING, *script.block(0, 0, 5), script.line(0, "in time", 6)], output)
    assert (shown, output.left_out) == ([OutputLine("in time")], 0)
    output.is_late = True
    skipped = LinesSkipped(pod="train-worker-0", count=40, container_id="c0")
    other = LinesSkipped(pod="train-worker-1", count=7, container_id="c1")
    shown = show([*script.STARTING, *script.block(0, 0, 5), skipped, other, script.line(0, "step 9 loss 1.0", 8)], output)
    assert (shown, output.left_out) == ([], 41)


def heartbeats(index: int, seconds: Iterable[int]) -> list[Event]:
    return [script.line(index, f"heartbeat of {index}", second) for second in seconds]


def test_the_pod_whose_progress_is_read_is_shown_although_another_one_prints():
    events: list[Event] = [*script.STARTING, *script.block(0, 0, 5), *script.block(1, 1, 5), *heartbeats(0, range(6, 9))]
    for step in range(4):
        events += [*heartbeats(0, [11 + step]), script.line(1, f"step: {step}, loss: {3 - step / 4}", 11 + step)]
    view = JobView(config=CONFIG)
    for event in events:
        view = reduce(view, event)
    assert view.training.pod == "train-worker-1"
    lines = show(events, ProgramOutput())
    assert [line.text for line in lines][-2:] == ["step: 2, loss: 2.5", "step: 3, loss: 2.25"]


def test_a_pod_that_ends_a_moment_earlier_stays_the_shown_one():
    events: list[Event] = [*script.STARTING, *script.block(0, 0, 5), *script.block(1, 1, 5)]
    for step in range(4):
        events += [script.line(index, f"step: {step}, loss: {3 - step / 4 + index}", 11 + step) for index in (0, 1)]
    events += [script.line(1, "bye from 1", 15), script.pod(0, PodPhase.SUCCEEDED), script.pod(1, PodPhase.SUCCEEDED)]
    events += [script.job(JobPhase.SUCCEEDED, started=script.START + SECOND)]
    view = JobView(config=CONFIG)
    for event in events:
        view = reduce(view, event)
    lines = show(events, ProgramOutput())
    assert view.training.pod == "train-worker-0"
    assert lines[-1].text == "step: 3, loss: 2.25"
