"""The agents or the processes do not find each other: address, port, name, id, store, etcd."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity, Subject

_ADDRESS = r"\[?(?P<host>[^\s\[\],()]+?)\]?:(?P<port>\d+)"
_PAIR = r"\((?P<host>[^\s,()]+), (?P<port>\d+)\)"

RULES = (
    Rule(
        id="jax-barrier",
        title="a JAX process did not register in time",
        cause="`jax.distributed.initialize()` waits for every process: one did not start, or cannot reach the coordinator",
        remedy="find the missing process: a pod without this error, or without any line; check the coordinator's address",
        pattern=r"DEADLINE_EXCEEDED: (?:Barrier timed out|[^\n]*coordination)|Failed to connect to coordination service",
        role=Role.SUSPECT,
    ),
    Rule(
        id="network-unreachable",
        title="`{host}` was tried over IPv6, and there is no IPv6 network",
        cause="the name has an IPv6 address, but the machine has no route to it; torch tries the next address",
        remedy="nothing, if training continues",
        pattern=rf"client socket has failed to connect to {_ADDRESS} \(errno: 101",
        role=Role.SUSPECT,  # torch goes on with the next address
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="rendezvous-unresolvable",
        title="the rendezvous host `{host}` has no address",
        cause=(
            "the name `{host}` cannot be resolved in the pod: it is misspelt, its service does not exist, or its pod has not "
            "started (a headless service without a ready pod has no DNS entry)"
        ),
        remedy="check `rendezvous.endpoint` and `kubectl get service {host}`; run `nc -zv {host} {port}` inside the pod",
        local_remedy="check `rendezvous.endpoint`: this machine must be able to resolve `{host}`",
        pattern=rf"network addresses of {_PAIR} cannot be retrieved",
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="rendezvous-no-route",
        title="there is no route to the rendezvous host `{host}`",
        cause="no machine answers at that address: the pod is gone, the address is wrong, or a network policy blocks it",
        remedy="check `rendezvous.endpoint` and the network policies; run `nc -zv {host} {port}` inside the pod",
        local_remedy="check `rendezvous.endpoint`; `nc -zv {host} {port}` shows whether the address answers",
        pattern=rf"client socket has failed to connect to {_ADDRESS} \(errno: 11[03]",
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="rendezvous-refused",
        title="nothing listens at the rendezvous endpoint `{host}:{port}`",
        cause="all connections were refused: the pod with the store has not started or has ended, or the port is wrong",
        remedy=(
            "check pod `{host}`; raise `read_timeout` in `rendezvous.conf` if it starts late; run `nc -zv {host} {port}` "
            "inside the pod"
        ),
        local_remedy="`kfjob logs {job}` shows why the process with the store has ended; check `rendezvous.endpoint`",
        pattern=rf"client socket has timed out after \S+ while trying to connect to {_PAIR}"
        rf"|client socket has failed to connect to (?:\[?(?P<host2>[^\s\[\],()]+?)\]?:(?P<port2>\d+)) \(errno: 111",
        role=Role.SUSPECT,  # the two rules above end with the same message
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="address-in-use",
        title="a port is already in use",
        cause="another process listens there: a pod on the host network, another job, or one that was not stopped",
        remedy="choose another port (`rendezvous.port` is that of torchrun's store), or stop the other process",
        pattern=r"EADDRINUSE|server socket has failed to listen on any local network address|[Aa]ddress already in use",
    ),
    Rule(
        id="too-few-nodes",
        title="too few agents joined the rendezvous",
        cause="fewer nodes than the minimum came within `join_timeout`: a pod is missing, or has another endpoint or id",
        remedy="`kfjob status {job}` shows which pods have not started; all need the same `rendezvous.endpoint` and id",
        pattern=r"RendezvousTimeoutError",
        role=Role.SUSPECT,
    ),
    Rule(
        id="stale-rendezvous-id",
        title="the rendezvous id belongs to a run that has ended",
        cause=("the store still holds a closed rendezvous with that id: an earlier launch or another job used the same id"),
        remedy=(
            "remove `rendezvous.id`: kfjob then gives every launch its own id (otherwise wait 2 h, or delete "
            "`/torchelastic/p2p/run_<id>` in etcd)"
        ),
        pattern=r"Rendezvous for run_id=(?P<id>\S+) was observed to be closed",
        role_after_join=Role.CONSEQUENCE,
    ),
    Rule(
        id="rendezvous-closed",
        title="the rendezvous was closed",
        cause="another agent of this run has ended and closed it, or the id was used before",
        remedy="find what ended first; a new launch gets a new rendezvous",
        pattern=r"RendezvousClosedError",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="python-etcd-missing",
        title="a Python package for the etcd rendezvous is missing",
        cause="the backends `etcd` and `etcd-v2` need python-etcd, urllib3 and dnspython, which torch does not install",
        remedy="add `pip install python-etcd urllib3 dnspython` to the Dockerfile, or use `rendezvous: c10d`",
        local_remedy="run `pip install python-etcd urllib3 dnspython`, or use `rendezvous: c10d`",
        pattern=r"EtcdStubError|No module named '(?:etcd|urllib3|dns)'",
    ),
    Rule(
        id="etcd-v2-disabled",
        title="the etcd server has no v2 API",
        cause="torch uses etcd's v2 API; 3.4 and 3.5 enable it only with `--enable-v2=true`, and 3.6 has removed it",
        remedy="start etcd 3.4 with `--enable-v2=true`, or remove `rendezvous.endpoint`: kfjob then starts its own etcd",
        pattern=r"EtcdException: Bad response : 404 page not found|The connection to etcd has failed",
    ),
    Rule(
        id="etcd-lease-dead",
        title="the etcd server cannot refresh the rendezvous, which expires two hours after the start",
        cause=(
            "etcd 3.5 does not refresh v2 directories, but torch's `etcd` backend relies on it; training continues, and the "
            "first restart after two hours fails"
        ),
        remedy="use etcd 3.4 (the version of kfjob's own etcd), or `rendezvous: c10d`",
        pattern=r"Raft Internal Error",
        severity=Severity.WARNING,
        permanent=True,
    ),
    Rule(
        id="etcd-unreachable",
        title="the etcd server cannot be reached",
        cause="nothing answers at the endpoint, or the server has ended; every agent ends within seconds after its etcd",
        remedy="check the etcd pod and `rendezvous.endpoint`; run `nc -zv <host> 2379` inside the pod",
        local_remedy="check `rendezvous.endpoint`; without it, `kfjob relaunch {job}` starts a new etcd",
        pattern=r"EtcdConnectionFailed|No more machines in the cluster|Could not get the list of servers",
    ),
    Rule(
        id="loglevel-lower-case",
        title="Python has no log level `{level}`",
        cause="torchrun passes `LOGLEVEL` to Python's logging, which accepts upper-case names only, and exits",
        remedy="write it in upper case: `LOGLEVEL: INFO`",
        pattern=r"ValueError: Unknown level: '(?P<level>[^']*)'",
    ),
    Rule(
        id="standalone-empty",
        title="torchrun got an empty `PET_STANDALONE`",
        cause='the training operator sets `PET_STANDALONE=""` for `standalone: true`, and torchrun cannot parse it',
        remedy="remove `standalone`: a single node needs only `nodes: 1`",
        pattern=r"PET_STANDALONE|ValueError: invalid literal for int\(\) with base 10: ''",
    ),
    Rule(
        id="wrong-nproc",
        title="torchrun cannot use `{value}` as the number of processes",
        cause="`--nproc-per-node` is neither a number nor gpu, cpu or auto, or it needs GPUs and there are none",
        remedy="set `processes_per_node` to the number of GPUs per node, or to `auto`",
        pattern=r"Unsupported nproc_per_node value: (?P<value>\S+)|ValueError: (?P<value2>Cuda is not available)",
    ),
    Rule(
        id="launcher-environment",
        title="the program was started without a launcher: `{name}` is not set",
        cause="`init_process_group` reads the variable; torchrun, `launch --use-env` and accelerate set it",
        remedy="start the program with `torchrun`, or set the missing variables",
        pattern=r"nvironment variable (?P<name>\w+) expected, but not set"
        r"|KeyError: '(?P<name2>(?:LOCAL_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_(?:ADDR|PORT))'",
    ),
    Rule(
        id="stale-store",
        title="the agents got the address of a rank 0 that is gone",
        cause=(
            "since torch 2.6 the workers share the rendezvous store, whose address outlives rank 0; such a job does not "
            "survive a change of rank 0"
        ),
        remedy="set `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` (kfjob sets it for elastic jobs) and relaunch",
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
)
