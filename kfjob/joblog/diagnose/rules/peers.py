"""Lost connections and timeouts; another process failed first."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="nccl-timeout",
        title="a collective timed out",
        cause=(
            "a rank did not join it in time: it failed, hangs, or called another collective; without any other error, the "
            "network drops packets or ranks took different paths"
        ),
        remedy=(
            "find the rank that is missing from those that timed out; `TORCH_NCCL_TRACE_BUFFER_SIZE=2000` and "
            "`TORCH_DISTRIBUTED_DEBUG=DETAIL` record where each rank was"
        ),
        pattern=r"[Ww]atchdog caught collective operation timeout|NCCL operation timed out|watchdog got stuck for"
        r"|Some NCCL operations have failed|Heartbeat monitor timed out|due to ProcessGroupNCCL watchdog hang",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="gloo-timeout",
        title="a gloo collective timed out",
        cause=(
            "a rank did not join it in time: it failed, hangs, or called another collective; without any other error, the "
            "network drops packets or ranks took different paths"
        ),
        remedy=(
            "find the rank that is missing from those that timed out; if a rank is only slow, raise "
            "`init_process_group(timeout=…)`; `GLOO_SOCKET_IFNAME` selects the interface between the nodes"
        ),
        pattern=r"Timed out waiting \d+ms for (?:recv|send) operation|barrier timed out|failed to pass monitoredBarrier"
        r"|reached monitoredBarrier, but",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="peer-closed",
        title="the connection to a peer was lost",
        cause="the process at the other end has ended",
        remedy="find the process that ended first: check the log and the state of its pod",
        pattern=r"Connection (?:closed|reset) by peer|closed by remote peer|Socket recv failed while polling|Socket closed"
        r"|remote process exited|Broken pipe|ncclRemoteError"
        r"|Connect timeout|peer closed connection|connectFullMesh failed|DistNetworkError: .*Connection refused",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="store-lost",
        title="the connection to the store was lost",
        cause="the process that holds the store (an agent, or rank 0) has ended",
        remedy="check the pod that holds the store: the rendezvous endpoint, or master_addr",
        pattern=r"Connection was likely closed|(?:sendBytes|recvVector|recvValue\w*|recvBytes) failed on"
        r"|Rendezvous(?:Connection|State)Error|DistNetworkError: |NCCL communicator was aborted",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="store-wait-timeout",
        title="a process timed out while it waited for a peer",
        cause="the process group needs every rank: one did not start, or has another address or round",
        remedy="find the missing rank: a pod without this error, or without any line",
        pattern=r"Timed out initializing process group|wait timeout after \d+ms, keys"
        r"|Timed out after \d+ seconds waiting for (?:clients|workers)|Socket Timeout"
        r"|store->get\(|waitForInput: ",
        role=Role.CONSEQUENCE,
    ),
)
