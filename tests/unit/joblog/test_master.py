"""Master discovery: the ranking of evidence, addresses, dead pods, and missing evidence."""

import pytest
from msgspec.structs import replace

from kfjob.base.errors import NoEvidence
from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.joblog.master.discovery import find_address_owner
from kfjob.joblog.master.evidence import Master, NoMaster, format_ranks
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.pods.pod_view import PodView
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

START = 1795242000 * SECOND
RUNNING = JobChanged(phase=JobPhase.RUNNING)
ENDED = JobChanged(phase=JobPhase.SUCCEEDED)


def line(pod: str, second: float, text: str, container: str = "") -> LogLine:
    return LogLine(pod=pod, text=text, time=START + int(second * SECOND), container_id=container)


def block(
    pod: str, second: float, rank: int, *, size: int = 2, address: str = "w-0", restart_count: int = 0, container: str = ""
) -> list[LogLine]:
    fields = (
        f"restart_count={restart_count}",
        f"master_addr={address}",
        "master_port=29500",
        f"group_rank={rank}",
        f"group_world_size={size}",
        "local_ranks=[0, 1]",
        f"role_ranks=[{2 * rank}, {2 * rank + 1}]",
        f"global_ranks=[{2 * rank}, {2 * rank + 1}]",
        f"role_world_sizes=[{2 * size}, {2 * size}]",
        f"global_world_sizes=[{2 * size}, {2 * size}]",
    )
    prefix = f"I1121 06:18:{second:09.6f} 1 torch/distributed/elastic/agent/server/api.py:552] "
    texts = ("[default] Rendezvous complete for workers. Result:", *(f"  {field}" for field in fields))
    return [line(pod, second, prefix + text, container) for text in texts]


def progress(pod: str, second: float, step: int = 1, container: str = "") -> LogLine:
    return line(pod, second, f"Batch {step} Loss: 1.00000, Speed: 1.00 samples/sec, lr: 0.000091", container)


def pod(name: str, phase: PodPhase = PodPhase.RUNNING, **fields: object) -> PodChanged:
    return replace(PodChanged(pod=name, phase=phase), **fields)


def discover(*events: Event | list[LogLine], **config: object) -> Master | NoMaster:
    flat = [item for event in events for item in (event if isinstance(event, list) else [event])]
    return reduce_all(JobView(config=replace(ObserveConfig(), **config)), flat).master


def find(*events: Event | list[LogLine], **config: object) -> Master:
    result = discover(*events, **config)
    assert isinstance(result, Master), result
    return result


def test_newest_progress_line_wins_by_time():
    master = find(RUNNING, progress("w-1", 10), progress("w-0", 5))
    assert (master.pod, master.confidence, master.evidence.kind) == ("w-1", "confirmed", "progress line")
    assert master.evidence.time == START + 10 * SECOND
    assert master.evidence.quote.startswith("Batch 1 Loss")


def test_reading_order_decides_without_times():
    lines = [replace(event, time=None) for event in (progress("w-1", 10), progress("w-0", 5))]
    assert find(RUNNING, lines).pod == "w-0"


def test_master_has_the_ranks_of_its_round():
    master = find(RUNNING, pod("w-1", node="node-b"), block("w-1", 1, 0, address="w-0"), pod("w-0"), progress("w-1", 2))
    assert (master.pod, master.node, master.container) == ("w-1", "node-b", "pytorch")
    assert (master.group_rank, master.global_ranks, master.world_size) == (0, (0, 1), 4)
    assert master.store is not None
    assert (master.store.address, master.store.port, master.store.pod) == ("w-0", 29500, "w-0")
    assert master.explain() == [
        "`w-1` on node `node-b` (global ranks 0-1) prints progress, confirmed",
        "progress line: Batch 1 Loss: 1.00000, Speed: 1.00 samples/sec, lr: 0.000091",
        "the store of its round is at `w-0`, which is pod `w-0`",
    ]


def test_newest_block_is_found_by_time_not_restart_count():
    master = find(RUNNING, block("w-0", 1, 0, restart_count=3), block("w-0", 20, 1), block("w-1", 20, 0, restart_count=0))
    assert (master.pod, master.confidence) == ("w-1", "likely")


def test_glog_times_order_blocks_of_different_files():
    later, earlier = block("w-0", 30, 0), block("w-1", 10, 0)
    assert find([replace(event, time=None) for event in later], [replace(event, time=None) for event in earlier]).pod == "w-0"


def test_printer_that_gets_another_rank_is_not_the_master():
    events = [*block("w-0", 1, 0), *block("w-1", 1, 1), progress("w-0", 5), *block("w-0", 9, 1), *block("w-1", 9, 0)]
    assert (find(RUNNING, events).pod, find(RUNNING, events).confidence) == ("w-1", "likely")
    assert find(RUNNING, events, progress("w-1", 12)).confidence == "confirmed"
    assert find(ENDED, events).pod == "w-0"  # the job has ended: this pod printed last


def test_superseded_printer_is_not_the_master():
    events = [*block("w-0", 1, 0), progress("w-0", 5), *block("w-1", 30, 0, size=1)]
    assert find(RUNNING, events).pod == "w-1"
    assert find(events).pod == "w-0"  # the phase of the job is unknown


@pytest.mark.parametrize("phase", [PodPhase.FAILED, PodPhase.DELETED, PodPhase.SUCCEEDED])
def test_dead_pod_is_not_the_master_of_a_running_job(phase: PodPhase):
    events = [*block("w-0", 1, 0), progress("w-0", 5), *block("w-1", 1, 1)]
    result = discover(RUNNING, pod("w-0", phase), events)
    assert getattr(result, "pod", None) != "w-0"
    ended = find(ENDED, pod("w-0", phase), events)
    assert ended.pod == "w-0"
    assert any("has ended" in note for note in ended.notes)


def test_previous_container_counts_only_after_the_end():
    events = [*block("w-0", 1, 0, container="a"), progress("w-0", 5, container="a"), line("w-0", 9, "starting", "b")]
    assert isinstance(discover(RUNNING, events, workers=("w-0", "w-1")), NoMaster)
    ended = find(ENDED, events)
    assert ended.pod == "w-0"
    assert any("before the container" in note for note in ended.notes)


def test_rank_0_is_the_master_if_every_rank_prints():
    master = find(RUNNING, block("w-0", 1, 0), block("w-1", 1, 1), progress("w-0", 5), progress("w-1", 6))
    assert (master.pod, master.notes) == ("w-0", ("also printed by `w-1`",))


def test_last_rank_stays_the_printing_rank_after_a_restart():
    first = [event for rank in range(3) for event in block(f"w-{rank}", 1, rank, size=3)]
    before = [*first, progress("w-2", 5)]
    assert find(RUNNING, before).pod == "w-2"
    moved = [event for rank in range(3) for event in block(f"w-{2 - rank}", 20, rank, size=3)]
    assert find(RUNNING, before, moved).pod == "w-0"


def test_loss_takes_precedence_over_a_bare_bar():
    bar = [line("w-1", 8, "***** Running training *****"), line("w-1", 9, " 10%|█   | 5/50 [00:01<00:09,  4.5it/s]")]
    assert find(RUNNING, progress("w-0", 5), bar).pod == "w-0"
    assert (find(RUNNING, bar).pod, find(RUNNING, bar).confidence) == ("w-1", "likely")


def test_bare_bar_before_the_training_names_no_pod():
    assert find(RUNNING, line("w-1", 9, " 10%|█   | 5/50 [00:01<00:09,  4.5it/s]")).evidence.kind == "prediction"


def test_last_state_of_a_redrawn_bar_is_quoted():
    last = "12%|█   | 6/50 [00:01<00:09,  4.5it/s]"
    drawn = line("w-1", 9, f"\r 10%|█   | 5/50 [00:01<00:09,  4.5it/s]\r {last}\r")
    begin = line("w-1", 8, "***** Running training *****")
    assert find(RUNNING, begin, drawn).evidence.quote == last
    cut = line("w-1", 9, f"{drawn.text}\r 14%|█   | 7/5")
    assert find(RUNNING, begin, cut).evidence.quote == last


def test_master_addr_is_evidence_without_a_log_of_rank_0():
    master = find(RUNNING, pod("w-0", ip="10.0.0.5"), pod("w-1"), block("w-1", 1, 1, address="10.0.0.5"))
    assert (master.pod, master.confidence, master.evidence.kind, master.evidence.pod) == (
        "w-0",
        "likely",
        "master address",
        "w-1",
    )
    assert "in the log of `w-1`" in master.explain()[1]


def test_master_addr_of_no_pod_is_a_reason():
    result = discover(RUNNING, pod("w-1"), block("w-1", 1, 1, address="login-node.example"), rendezvous="etcd", loglevel="INFO")
    assert isinstance(result, NoMaster)
    assert any("`login-node.example`, which belongs to no live pod of the job" in reason for reason in result.reasons)


@pytest.mark.parametrize(
    ("backend", "workers", "expected"),
    [
        ("c10d", ("w-2", "w-10", "w-1"), "w-1"),
        ("c10d", ("w-2", "w-10"), "w-10"),
        ("etcd-v2", ("w-2", "w-10"), "w-10"),
        ("static", ("w-2", "w-10"), "w-2"),
        ("", ("w-7",), "w-7"),
    ],
)
def test_prediction_is_marked(backend: str, workers: tuple[str, ...], expected: str):
    master = find(RUNNING, rendezvous=backend, workers=workers)
    assert (master.pod, master.confidence) == (expected, "predicted")
    assert "predicted" in master.explain()[0]


def test_prediction_for_pods_that_train_on_their_own_names_no_rendezvous():
    master = find(RUNNING, workers=("w-0", "w-1"), rendezvous="c10d", unconnected="python x.py")
    assert master.explain() == [
        "`w-0` (ranks unknown) would print progress, predicted",
        "prediction: each pod runs its own `python x.py`, and this is the first one",
    ]


def test_etcd_backend_has_no_prediction():
    result = discover(RUNNING, pod("w-0"), pod("w-1"), rendezvous="etcd", workers=("w-0", "w-1"))
    assert isinstance(result, NoMaster)
    assert "cannot be predicted" in result.reasons[-1]


def test_incomplete_pods_have_no_prediction():
    launch = "I1121 06:18:57.350000 1 torch/distributed/launcher/api.py:257] "
    lines = [line("w-1", 1, launch + text) for text in ("Starting elastic_operator with launch configs:", "  max_nodes : 2")]
    lines.append(line("w-1", 1, launch + "  rdzv_backend : c10d"))
    assert isinstance(discover(lines), NoMaster)
    assert find(lines, pod("w-0")).pod == "w-0"


def test_static_rendezvous_has_a_node_rank():
    launch = "I1121 06:18:57.350000 1 torch/distributed/launcher/api.py:257] "
    texts = (
        "Starting elastic_operator with launch configs:",
        "  rdzv_backend : static",
        "  rdzv_configs : {'rank': 0, 'timeout': 900}",
    )
    master = find(RUNNING, pod("w-0"), [line("w-1", 1, launch + text) for text in texts])
    assert (master.pod, master.confidence, master.evidence.kind) == ("w-1", "likely", "node rank")


PATTERN_HINT = "describe the job's progress line with `progress:` in its spec; `kfjob progress` tries a pattern on its log"


def test_error_without_evidence_counts_pods_and_lines():
    events = [line("w-0", 1, "hello"), line("w-1", 1, "hello")]
    result = discover(RUNNING, events, rendezvous="etcd", loglevel="WARNING")
    assert isinstance(result, NoMaster)
    error = result.to_error("llama3")
    assert isinstance(error, NoEvidence)
    assert error.lines() == [
        "error: no master found for `llama3` in 2 pods, 2 lines",
        "  cause: no progress line and no rendezvous result in any log",
        "         `LOGLEVEL` is `WARNING`",
        "         with etcd the first agent that joins gets rank 0, which cannot be predicted",
        f"hint: {PATTERN_HINT}, or set `LOGLEVEL` to `INFO` in the job's environment and relaunch",
    ]


def test_missing_lines_are_a_reason():
    result = discover(RUNNING, pod("w-0"), pod("w-1"), rendezvous="etcd", loglevel="INFO")
    assert isinstance(result, NoMaster)
    assert result.reasons[0] == "no pod has printed anything yet"
    assert result.hint is None


PODS = {
    "fsdp-worker-0": PodView(
        "fsdp-worker-0", pod("fsdp-worker-0", ip="10.77.0.10", node="ip-10-1-2-3.ec2.internal", host_ip="10.1.2.3")
    ),
    "fsdp-worker-1": PodView("fsdp-worker-1", pod("fsdp-worker-1", ip="10.77.0.11", node="node-b", host_ip="10.1.2.4")),
    "fsdp-worker-10": PodView("fsdp-worker-10", pod("fsdp-worker-10", ip="127.0.0.7", node="node-c", host_ip="10.1.2.5")),
    "fsdp-worker-11": PodView("fsdp-worker-11", pod("fsdp-worker-11", ip="fd00::b", node="node-c", host_ip="10.1.2.5")),
}


@pytest.mark.parametrize(
    ("address", "owner"),
    [
        ("fsdp-worker-1", "fsdp-worker-1"),
        ("FSDP-Worker-1.", "fsdp-worker-1"),
        ("fsdp-worker-1.default.svc.cluster.local", "fsdp-worker-1"),
        ("fsdp-worker-1.fsdp-worker-1.default.svc.cluster.local", "fsdp-worker-1"),
        ("10-77-0-11.fsdp-worker-1.default.svc.cluster.local", "fsdp-worker-1"),
        ("10-77-0-11.default.pod.cluster.local", "fsdp-worker-1"),
        ("10.77.0.11", "fsdp-worker-1"),
        ("fd00::b", "fsdp-worker-11"),
        ("[fd00::b]", "fsdp-worker-11"),
        ("127.0.0.7", "fsdp-worker-10"),
        ("ip-10-1-2-3.ec2.internal", "fsdp-worker-0"),
        ("ip-10-1-2-3", "fsdp-worker-0"),
        ("node-b.example.com", "fsdp-worker-1"),
        ("10.1.2.4", "fsdp-worker-1"),
        ("fsdp-worker-12", "fsdp-worker-12"),
        ("localhost", "fsdp-worker-0"),
        ("127.0.0.1", "fsdp-worker-0"),
        ("node-c", None),  # two pods of the job
        ("10.1.2.5", None),
        ("fsdp-worker-2", None),
        ("login-node", None),
        ("10.9.9.9", None),
    ],
)
def test_address_is_mapped_to_its_pod(address: str, owner: str | None):
    assert find_address_owner(address, PODS, ("fsdp-worker-12",), own="fsdp-worker-0") == owner


def test_address_is_mapped_to_a_pod_with_another_name_than_its_host():
    pods = {name: PodView(name, pod(name, host=name[:-6])) for name in ("train-node-0-0-abcde", "train-node-0-1-fghij")}
    for address in ("train-node-0-1", "train-node-0-1.train", "train-node-0-1.train.default.svc.cluster.local"):
        assert find_address_owner(address, pods) == "train-node-0-1-fghij"


@pytest.mark.parametrize(("ranks", "text"), [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((4, 0, 2, 3), "0, 2-4")])
def test_ranks_are_formatted_as_ranges(ranks: tuple[int, ...], text: str):
    assert format_ranks(ranks) == text


def unread(pod: str, *, first: float = 5) -> list[LogLine]:
    names = "abcdefghijklmnopqrstuvwxyzabcdefghijklmn"
    return [line(pod, first + second, f"loss({9 - second / 100}) of sample {name}") for second, name in enumerate(names)]


def test_only_pod_with_lines_like_progress_comes_before_rank_0():
    master = find(RUNNING, pod("w-0"), pod("w-1"), block("w-0", 1, 0), block("w-1", 1, 1), unread("w-1"))
    assert (master.pod, master.evidence.kind, master.confidence) == ("w-1", "line like progress", "likely")
    assert master.evidence.quote.startswith("loss(")


def test_rank_0_comes_first_where_several_pods_print_lines_like_progress():
    both = [*unread("w-0"), *unread("w-1")]
    master = find(RUNNING, pod("w-0"), pod("w-1"), block("w-0", 1, 0), block("w-1", 1, 1), both)
    assert (master.pod, master.evidence.kind) == ("w-0", "group rank")


def test_lines_like_progress_alone_name_no_pod():
    assert isinstance(discover(RUNNING, pod("w-0"), pod("w-1"), unread("w-1")), NoMaster)
