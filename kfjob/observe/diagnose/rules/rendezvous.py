"""How agents meet, and why they do not (torch/distributed/elastic/rendezvous, torch/csrc/distributed/c10d/socket.cpp)."""

from kfjob.observe.diagnose.rule import Role, Rule, Severity, Subject

_ADDRESS = r"\[?(?P<host>[^\s\[\],()]+?)\]?:(?P<port>\d+)"
_PAIR = r"\((?P<host>[^\s,()]+), (?P<port>\d+)\)"

RULES = (
    Rule(
        id="network-unreachable",
        title="`{host}` was tried over IPv6 first, and there is no IPv6 network",
        cause="the name has an IPv6 address and the machine has no route for it; the next address is tried",
        remedy="nothing, if training goes on",
        markers=("errno: 101",),
        pattern=rf"client socket has failed to connect to {_ADDRESS} \(errno: 101",
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="rendezvous-unresolvable",
        title="the rendezvous host `{host}` has no address",
        cause="the name `{host}` cannot be resolved in the pod: it is misspelt, its service does not exist, or its pod has "
        "not started yet (a headless service without a ready pod has no DNS entry)",
        remedy="check `rendezvous.endpoint` and `kubectl get service {host}`; from inside the pod: `nc -zv {host} {port}`",
        markers=("cannot be retrieved", "Name or service not known", "name resolution"),
        pattern=rf"network addresses of {_PAIR} cannot be retrieved",
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="rendezvous-no-route",
        title="there is no route to the rendezvous host `{host}`",
        cause="no machine answers at that address: the pod is gone, the address is wrong, or a network policy rejects it",
        remedy="check `rendezvous.endpoint` and network policies; from inside the pod: `nc -zv {host} {port}`",
        markers=("errno: 113", "errno: 110"),
        pattern=rf"client socket has failed to connect to {_ADDRESS} \(errno: 11[03]",
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="rendezvous-refused",
        title="nobody listens at the rendezvous endpoint `{host}:{port}`",
        cause="connections were refused until the time was up: the pod that holds the store has not started or has ended, or "
        "the port is another one",
        remedy="look at the pod `{host}`; raise `read_timeout` in `rendezvous.conf` if it only starts later; from inside the "
        "pod: `nc -zv {host} {port}`",
        markers=("client socket has timed out", "Connection refused"),
        pattern=rf"client socket has timed out after \S+ while trying to connect to {_PAIR}"
        rf"|client socket has failed to connect to (?:\[?(?P<host2>[^\s\[\],()]+?)\]?:(?P<port2>\d+)) \(errno: 111",
        role=Role.SUSPECT,  # what also comes at the end of the two above
        role_after_join=Role.CONSEQUENCE,
        harmless_before_join=True,
    ),
    Rule(
        id="rendezvous-silent",
        title="an agent waits for the rendezvous and says nothing",
        cause="something else listens at the endpoint and never answers, or (static rendezvous) the master address is not "
        "that "
        "of node rank 0: torch waits without a word in both cases",
        remedy="check `rendezvous.endpoint`: the port must be that of the store, and no other service's",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
    ),
    Rule(
        id="address-in-use",
        title="the port of the store is taken",
        cause="another process of the same machine (host network, another job, an agent that was not ended) listens there",
        remedy="choose another `rendezvous.port`, or end the other process",
        markers=("EADDRINUSE", "failed to listen on", "ddress already in use"),
        pattern=r"EADDRINUSE|server socket has failed to listen on any local network address|[Aa]ddress already in use",
    ),
    Rule(
        id="too-few-nodes",
        title="too few agents came to the rendezvous",
        cause="the agent waited `join_timeout` seconds for the minimum of nodes: a pod is missing, or waits elsewhere "
        "(another "
        "endpoint, another id)",
        remedy="see which pods have not started (`kfjob status`); all must have the same endpoint and `rendezvous.id`",
        markers=("RendezvousTimeoutError",),
        pattern=r"RendezvousTimeoutError",
        role=Role.SUSPECT,
    ),
    Rule(
        id="stale-rendezvous-id",
        title="the rendezvous id belongs to a run that is over",
        cause="the store still knows a rendezvous of that id, and it is closed: a relaunch or a neighbour used the same id",
        remedy="give each launch an id of its own: kfjob does, unless `rendezvous.id` is set (else wait 2 h, or delete "
        "`/torchelastic/p2p/run_<id>` in etcd)",
        markers=("observed to be closed",),
        pattern=r"Rendezvous for run_id=(?P<id>\S+) was observed to be closed",
        role_after_join=Role.CONSEQUENCE,
    ),
    Rule(
        id="rendezvous-closed",
        title="the rendezvous was closed",
        cause="an agent of this run had ended and closed it for all, or the id was used before",
        remedy="see what ended first; a new launch gets a new rendezvous",
        markers=("RendezvousClosedError",),
        pattern=r"RendezvousClosedError",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="python-etcd-missing",
        title="the image lacks the Python package for the etcd rendezvous",
        cause="`--rdzv-backend=etcd` and `etcd-v2` need python-etcd, urllib3 and dnspython, which torch does not bring",
        remedy="`pip install python-etcd urllib3 dnspython` in the image, or use `rendezvous: c10d`",
        markers=("EtcdStubError", "No module named 'etcd'", "No module named 'urllib3'", "No module named 'dns'"),
        pattern=r"EtcdStubError|No module named '(?:etcd|urllib3|dns)'",
    ),
    Rule(
        id="etcd-v2-off",
        title="the etcd server has no v2 API",
        cause="torch speaks etcd's v2 API; 3.4 and 3.5 have it only with `--enable-v2=true`, 3.6 has removed it",
        remedy="start etcd 3.4 with `--enable-v2=true`, or leave `rendezvous.endpoint` out: kfjob brings an etcd of its own",
        markers=("Bad response : 404", "connection to etcd has failed"),
        pattern=r"EtcdException: Bad response : 404 page not found|The connection to etcd has failed",
    ),
    Rule(
        id="etcd-lease-dead",
        title="the etcd server cannot refresh the rendezvous: it vanishes two hours after the start",
        cause="etcd 3.5 does not refresh v2 directories, which torch's `etcd` backend relies on; training goes on, and the "
        "first "
        "restart after two hours fails",
        remedy="use etcd 3.4 (kfjob's own is), or `rendezvous: c10d`",
        markers=("lease_worker", "Raft Internal Error"),
        pattern=r"Exception in thread .*lease_worker|Raft Internal Error",
        severity=Severity.WARNING,
        permanent=True,
    ),
    Rule(
        id="etcd-unreachable",
        title="the etcd server cannot be reached",
        cause="nothing answers at the endpoint, or the server has ended; every agent ends within seconds when its etcd does",
        remedy="look at the etcd pod; check `rendezvous.endpoint`; from inside the pod: `nc -zv <host> 2379`",
        markers=("EtcdConnectionFailed", "No more machines in the cluster", "Could not get the list of servers"),
        pattern=r"EtcdConnectionFailed|No more machines in the cluster|Could not get the list of servers",
    ),
    Rule(
        id="loglevel-lower-case",
        title="`LOGLEVEL={level}` is not a level that Python knows",
        cause="torchrun hands LOGLEVEL to Python's logging, which knows upper-case names only, and ends",
        remedy="write it in upper case: `LOGLEVEL: INFO`",
        markers=("Unknown level",),
        pattern=r"ValueError: Unknown level: '(?P<level>[^']*)'",
    ),
    Rule(
        id="standalone-empty",
        title="torchrun was given an empty `PET_STANDALONE`",
        cause='the training operator sends `PET_STANDALONE=""` for `standalone: true`, which torchrun cannot read',
        remedy="do not set `standalone`: a single node needs no other setting than `nodes: 1`",
        markers=("PET_STANDALONE", "invalid literal for int() with base 10: ''"),
        pattern=r"PET_STANDALONE|ValueError: invalid literal for int\(\) with base 10: ''",
    ),
    Rule(
        id="wrong-nproc",
        title="torchrun cannot use `{value}` as the number of processes",
        cause="the value of `--nproc-per-node` is neither a number nor gpu, cpu or auto, or asks for GPUs where there are none",
        remedy="set `processes_per_node` to the number of GPUs of a node, or `auto`",
        markers=("nproc_per_node", "nproc-per-node", "Cuda is not available"),
        pattern=r"Unsupported nproc_per_node value: (?P<value>\S+)|ValueError: (?P<value2>Cuda is not available)",
    ),
    Rule(
        id="launcher-environment",
        title="the program was started without a launcher: `{name}` is not set",
        cause="`init_process_group` reads it from the environment; torchrun, `launch --use-env` and accelerate set it",
        remedy="start the program with `torchrun`, or set the variables that your launcher does not",
        markers=("expected, but not set",),
        pattern=r"nvironment variable (?P<name>\w+) expected, but not set",
    ),
    Rule(
        id="stale-store",
        title="the agents were given the address of a rank 0 that is gone",
        cause="since torch 2.6 the workers share the rendezvous' store and its address outlives rank 0, so that a job does "
        "not "
        "survive a change of rank 0",
        remedy="set `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` (kfjob does for elastic jobs) and relaunch",
        subject=Subject.VIEW,
        role=Role.SUSPECT,
    ),
)
