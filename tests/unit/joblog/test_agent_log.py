"""Line formats of the agent, each with a synthetic block; test_recordings.py has the real ones."""

import pytest

from kfjob.joblog.agents.agent_log import AgentLog
from kfjob.joblog.agents.agent_records import (
    AgentEvent,
    AgentEventKind,
    AgentRecord,
    LaunchConfig,
    RendezvousResult,
    ResultSource,
)

FIELDS = (
    "restart_count=1",
    "master_addr=fsdp-worker-1",
    "master_port=29500",
    "group_rank=12",
    "group_world_size=16",
    "local_ranks=[0, 1]",
    "role_ranks=[24, 25]",
    "global_ranks=[24, 25]",
    "role_world_sizes=[32, 32]",
    "global_world_sizes=[32, 32]",
)
MESSAGE = ("[trainer] Rendezvous complete for workers. Result:", *(f"  {field}" for field in FIELDS))
GLOG = "I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552] "
GLOG_THREAD = "I0229 23:59:59.999999 140600039099264 torch/distributed/elastic/agent/server/api.py:568] "
BRACKETED = "[2026-11-21 06:29:28,733] torch.distributed.elastic.agent.server.api: [INFO] "
PLAIN = "INFO:torch.distributed.elastic.agent.server.api:"


def read_records(lines: list[str], time: int | None = None) -> list[AgentRecord]:
    log = AgentLog()
    result: list[AgentRecord] = []
    for number, text in enumerate(lines):
        log, records = log.feed(number, text, time)
        result += records
    return result


def results(lines: list[str]) -> list[RendezvousResult]:
    newest = {record.line: record for record in read_records(lines) if isinstance(record, RendezvousResult)}
    return list(newest.values())


FORMS = {
    "glog with pid": [GLOG + line for line in MESSAGE],
    "glog with thread id": [GLOG_THREAD + line for line in MESSAGE],
    "glog of a torch that is not on sys.path": [GLOG.replace("1 torch/", "1 /opt/build/torch/") + line for line in MESSAGE],
    "bracketed": [BRACKETED + line for line in MESSAGE],
    "plain": [PLAIN + MESSAGE[0], *MESSAGE[1:], ""],
    "plain with a prefix of its own": [
        "ray/0 (CommandActor pid=494406) " + line for line in (PLAIN + MESSAGE[0], *MESSAGE[1:])
    ],
    "plain with --tee": ["[default0]:" + line for line in (PLAIN + MESSAGE[0], *MESSAGE[1:])],
    "another TORCH_LOGS_FORMAT": ["2026-11-21 06:18 INFO " + MESSAGE[0], *MESSAGE[1:]],
    "no prefix at all": list(MESSAGE),
    "two prefixes": ["[worker-0] 2026-11-21T06:18:58Z " + GLOG + line for line in MESSAGE],
}


@pytest.mark.parametrize("form", FORMS)
def test_block_is_read_in_every_format(form: str):
    (block,) = results(FORMS[form])
    assert block.complete
    assert (block.restart_count, block.master_addr, block.master_port) == (1, "fsdp-worker-1", 29500)
    assert (block.group_rank, block.group_world_size, block.role) == (12, 16, "trainer")
    assert (block.local_ranks, block.role_ranks, block.global_ranks) == ((0, 1), (24, 25), (24, 25))
    assert (block.role_world_sizes, block.global_world_sizes) == ((32, 32), (32, 32))
    assert "group_rank=12" in block.quote


@pytest.mark.parametrize("form", [name for name in FORMS if name not in {"plain with --tee", "two prefixes"}])
@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_block_without_its_start_is_read_partially(form: str, cut: int):
    (block,) = results(FORMS[form][cut:])
    assert not block.complete or cut == 1
    assert (block.group_rank, block.global_ranks) == (12, (24, 25))


def test_event_time_takes_precedence_over_the_text():
    assert results([GLOG + line for line in MESSAGE])[0].yearless == 974787538_464000000  # 2000-11-21
    assert results([BRACKETED + line for line in MESSAGE])[0].time == 1795242568_733000000
    stamped = results(["2026-11-21T06:18:58.464000123Z " + GLOG + line for line in MESSAGE])[0]
    assert (stamped.time, stamped.yearless) == (1795241938_464000123, None)
    newest = [
        record for record in read_records([GLOG + line for line in MESSAGE], time=5) if isinstance(record, RendezvousResult)
    ][-1]
    assert (newest.time, newest.yearless) == (5, None)


def test_truncated_value_is_ignored():
    (block,) = results([GLOG + line for line in (*MESSAGE[:8], "  global_ranks=[24, 2")])
    assert block.group_rank == 12
    assert block.global_ranks == ()


def test_two_agents_in_one_log_are_separated():
    first = [GLOG.replace(" 1 ", " 7 ") + line for line in MESSAGE]
    second = [GLOG.replace(" 1 ", " 8 ") + line.replace("group_rank=12", "group_rank=3") for line in MESSAGE]
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert [(block.group_rank, block.complete) for block in results(mixed)] == [(12, True), (3, True)]


def test_consecutive_blocks_of_one_agent_are_separated():
    later = [GLOG.replace("06:18:58", "06:19:58") + line.replace("=12", "=0") for line in MESSAGE]
    first, second = results([GLOG + line for line in MESSAGE[:6]] + later[6:] + later)
    assert (first.group_rank, first.global_ranks) == (12, ())
    assert (second.group_rank, second.complete) == (0, True)


@pytest.mark.parametrize(
    "lines",
    [
        ["group_rank=0"],
        ["  group_rank=0"],
        ["config:", "  master_addr=host", "  lr=1", "  group_rank=0"],
        ["[rank0]: group_rank=0", "[rank0]: group_world_size=2", "[rank0]: local_ranks=[0]"],
        ['WENV {"GROUP_RANK": "0", "MASTER_ADDR": "fsdp-master-0"}'],
        ["Rendezvous complete for workers. Result: group_rank=0"],
    ],
)
def test_lines_of_other_programs_are_no_block(lines: list[str]):
    assert read_records(lines) == []


@pytest.mark.parametrize("prefix", [GLOG, GLOG_THREAD, BRACKETED, PLAIN, "[default0]:" + GLOG])
@pytest.mark.parametrize(
    ("message", "kind", "numbers"),
    [
        ("[default] Rendezvous'ing worker group", AgentEventKind.RENDEZVOUS, {}),
        ("[default] Starting worker group", AgentEventKind.STARTED, {}),
        (
            "[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
            AgentEventKind.RESTARTING,
            {"attempts_left": 2, "attempts": 3},
        ),
        (
            "[default] Detected 2 new nodes from group_rank=1; will restart worker group",
            AgentEventKind.MEMBERSHIP,
            {"nodes": 2},
        ),
        (
            "failed (exitcode: -9) local_rank: 3 (pid: 11) of binary: /usr/bin/python",
            AgentEventKind.WORKER_FAILED,
            {"exit_code": -9, "local_rank": 3},
        ),
        ("[default] worker group successfully finished. Waiting 300 seconds for other agents", AgentEventKind.SUCCEEDED, {}),
        ("Received 15 death signal, shutting down workers", AgentEventKind.SIGNAL_RECEIVED, {"signal": "15"}),
        (
            "Received Signals.SIGTERM death signal, shutting down workers",
            AgentEventKind.SIGNAL_RECEIVED,
            {"signal": "Signals.SIGTERM"},
        ),
        ("Sending process 16 closing signal SIGTERM", AgentEventKind.SIGNAL_SENT, {"signal": "SIGTERM"}),
        ("The node 'fsdp-worker-0_1_0' has closed the rendezvous 'job'.", AgentEventKind.CLOSED, {}),
    ],
)
def test_agent_events_are_read(prefix: str, message: str, kind: AgentEventKind, numbers: dict[str, object]):
    events = read_records([prefix + message])
    if kind is AgentEventKind.SUCCEEDED and prefix.startswith("[default0]:"):
        assert events == []  # a worker may print anything, and success needs the agent's own word
        return
    (event,) = events
    assert isinstance(event, AgentEvent)
    assert event.kind is kind
    assert {name: getattr(event, name) for name in numbers} == numbers


def test_closed_rendezvous_after_a_traceback_is_read():
    (event,) = read_records(["torch.distributed.elastic.rendezvous.api.RendezvousClosedError"])
    assert isinstance(event, AgentEvent)
    assert event.kind is AgentEventKind.FAILED


def test_failed_shutdown_at_the_end_is_no_event():
    harmless = "The node 'w_1_0' has failed to shutdown the rendezvous 'job' due to an error of type RendezvousConnectionError."
    assert (
        read_records([GLOG.replace("I1121", "W1121").replace("agent/server/api", "rendezvous/dynamic_rendezvous") + harmless])
        == []
    )


def test_ranks_are_read_without_a_block():
    etcd = "INFO 2026-11-21 06:28:08,520 Joined rendezvous version 1 as rank 0. Full state: {'status': 'joinable'}"
    node = "I1121 06:18:58.464000 1 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1207] "
    node += "The node 'fsdp-worker-1_1_0' has joined round 0 of the rendezvous 'job' as rank 1 in a world of size 2."
    first, second = results([etcd, node])
    assert (first.source, first.group_rank) == (ResultSource.ETCD, 0)
    assert (second.source, second.group_rank, second.group_world_size) == (ResultSource.NODE, 1, 2)


@pytest.mark.parametrize(
    "line", ['{"name": "torchelastic.worker.status.START", "source": "WORKER", "metad', "torchelastic.worker.status."]
)
def test_truncated_console_event_is_ignored(line: str):
    assert read_records([line]) == []


def test_launch_message_has_backend_and_node_rank():
    lines = [
        "Starting elastic_operator with launch configs:",
        "  min_nodes        : 2",
        "  max_nodes        : 4",
        "  nproc_per_node   : 8",
        "  run_id           : job",
        "  rdzv_backend     : static",
        "  rdzv_endpoint    : fsdp-master-0:29500",
        "  rdzv_configs     : {'rank': 1, 'timeout': 900}",
    ]
    for prefix in (GLOG, BRACKETED, "", "[worker-0] "):
        newest = read_records([prefix + line for line in lines])[-1]
        assert newest == LaunchConfig(
            min_nodes=2,
            max_nodes=4,
            nproc_per_node=8,
            run_id="job",
            rdzv_backend="static",
            rdzv_endpoint="fsdp-master-0:29500",
            node_rank=1,
        )


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (AgentEvent(kind=AgentEventKind.WORKER_FAILED, text="", local_rank=2, exit_code=1), "local rank 2, exit code 1"),
        (AgentEvent(kind=AgentEventKind.WORKER_FAILED, text="", local_rank=0, exit_code=-9), "local rank 0, SIGKILL"),
        (AgentEvent(kind=AgentEventKind.WORKER_FAILED, text="", local_rank=0, exit_code=-99), "local rank 0, signal 99"),
        (
            AgentEvent(kind=AgentEventKind.RESTARTING, text="", attempts_left=2, attempts=3),
            "the training processes begin again, restart 2 of 3",
        ),
        (
            AgentEvent(kind=AgentEventKind.MEMBERSHIP, text="", nodes=1),
            "a pod waits to join, so the training processes begin again",
        ),
        (
            AgentEvent(kind=AgentEventKind.MEMBERSHIP, text="", nodes=2),
            "2 pods wait to join, so the training processes begin again",
        ),
        (
            AgentEvent(
                kind=AgentEventKind.FAILED, text="torch.distributed.elastic.rendezvous.api.RendezvousError: The store. See."
            ),
            "torchrun gave up (RendezvousError)",
        ),
        (AgentEvent(kind=AgentEventKind.FAILED, text=""), "torchrun gave up"),
        (
            AgentEvent(kind=AgentEventKind.SIGNAL_RECEIVED, text="", signal="15"),
            "torchrun received SIGTERM and stops the training processes",
        ),
        (
            AgentEvent(kind=AgentEventKind.SIGNAL_RECEIVED, text="", signal="Signals.SIGINT"),
            "torchrun received SIGINT and stops the training processes",
        ),
        (
            AgentEvent(kind=AgentEventKind.FAILED, text="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
            "torchrun gave up (ChildFailedError)",
        ),
        (AgentEvent(kind=AgentEventKind.STOPPING, text="[default] Stopping worker group"), "[default] Stopping worker group"),
    ],
)
def test_an_event_is_said_in_plain_words(event, text):
    assert str(event) == text
