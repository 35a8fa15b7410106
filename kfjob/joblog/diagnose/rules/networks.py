"""NCCL, libfabric, gloo, proxies, certificates and HTTP between processes and services."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity, Subject

RULES = (
    Rule(
        id="nccl-gpu-memory",
        title="a GPU has no memory left for NCCL's buffers",
        cause="the program uses all memory of the card, or another process does, so NCCL cannot allocate its buffers on it",
        remedy=(
            "leave memory free on the GPU: a smaller batch, `torch.cuda.set_per_process_memory_fraction`, or a smaller "
            "`NCCL_BUFFSIZE`; `nvidia-smi` shows other processes"
        ),
        pattern=r"Cuda failure (?:\d+ )?'?out of memory|Failed to CUDA (?:host )?[cm]?alloc|ncclCudaMalloc\w* failed",
    ),
    Rule(
        id="nccl-memlock",
        title="the limit of locked memory is too low for RDMA",
        cause="NCCL must lock memory (`ulimit -l`) to register it with the network card, and the limit forbids it",
        remedy=(
            "raise the memlock limit to unlimited: add the capability IPC_LOCK in `pod.security_context`, and set "
            "LimitMEMLOCK=infinity for containerd on the nodes"
        ),
        local_remedy="raise the memlock limit (`ulimit -l unlimited`, or memlock in /etc/security/limits.conf)",
        pattern=r"ibv_reg_\w+ failed(?:\s+with error (?:Cannot allocate memory|Operation not permitted|Resource temporarily))?"
        r"|ibv_(?:create|alloc)_\w+ failed|RLIMIT_MEMLOCK|fi_mr_reg\w* failed.*(?:Cannot allocate memory|-12)",
        in_warnings=True,
    ),
    Rule(
        id="nccl-ib-setup",
        title="NCCL cannot connect two network cards over RDMA",
        cause="the queue pair has a wrong address: another GID index (RoCE), a card in another subnet, or a port that is down",
        remedy=(
            "set `NCCL_IB_HCA` to the cards that all nodes share and `NCCL_IB_GID_INDEX` to the RoCE v2 index (`show_gids`); "
            "`ibstat` shows the ports; `NCCL_IB_DISABLE=1` proves it"
        ),
        pattern=r"ibv_(?:modify_qp|query_gid|open_device|query_port)\w* failed",
    ),
    Rule(
        id="nccl-ib-event",
        title="a network card reports `{what}`",
        cause=(
            "the card rejected a request of its peer or failed: the ports of the two nodes differ (MTU, firmware, drivers), "
            "or the card or its driver is broken"
        ),
        remedy=(
            "compare both nodes' ports (`ibv_devinfo -v`, `ip link`): MTU, firmware and driver must be the same; `dmesg` of "
            "the node shows errors of the card"
        ),
        # net_ib.cc ncclIbAsyncThreadMain; rdma-core libibverbs/enum_strs.c ibv_event_type_str
        pattern=r"Got async (?:fatal )?event ?: (?P<what>[^\n]*(?:work queue|catastrophic) error)",
    ),
    Rule(
        id="nccl-ib-port",
        title="the link of a network card went down",
        cause="the card reports an error of its port: a cable, a transceiver or a switch port fails, so packets are lost",
        remedy="check the cable, the switch port and the link's counters on the node with this log (`ibstat`, `ethtool -S`)",
        pattern=r"Got async (?:fatal )?event ?: port error",
    ),
    Rule(
        id="nccl-ib-completion",
        title="an RDMA transfer failed (status {status})",
        cause=(
            "status 12: the network card of the peer did not acknowledge in time, so a link, a switch, or the peer's node is "
            "at fault; 5: the connection was torn down; 9 to 11: the peer's card rejected the request, usually because the "
            "ports of the two nodes differ (MTU, firmware, drivers)"
        ),
        remedy=(
            "check the node of the peer that the message names and its links (`ibstat`, switch counters); raise "
            "`NCCL_IB_TIMEOUT` to 22 and `NCCL_IB_RETRY_CNT` to 13 on large fabrics"
        ),
        pattern=r"[Gg]ot completion (?:from peer \S+ )?with (?:status|error)[ =]?(?P<status>\d+)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="nccl-connect",
        title="NCCL cannot connect to `{address}`",
        cause=(
            "the interface that NCCL picked does not lead to the peer ({why}): it is not routed between the nodes, has a "
            "link-local IPv6 address (fe80::), or a firewall blocks the ports"
        ),
        remedy=(
            "set `NCCL_SOCKET_IFNAME` to the interface that all nodes share (usually `eth0`) and `NCCL_SOCKET_FAMILY=AF_INET`; "
            "allow all ports between the pods"
        ),
        pattern=r"(?:socketStartConnect|socketPollConnect)[^\n]*?Connect to (?P<address>[^\s<]+)(?:<\d+>)? (?:failed"
        r"|returned)[^:\n]*: ?"
        r"(?P<why>[^\n]*)|NCCL WARN (?:Net : )?Connect to (?P<address2>[^\s<]+)(?:<\d+>)? failed ?: ?(?P<why2>[^\n]*)",
        unless=("Connection refused",),
    ),
    Rule(
        id="rank-connect",
        title="a rank cannot connect to the one at `{address}`",
        cause="{why}: that rank has ended or has not started, it offers another interface, or a firewall blocks its port",
        remedy=(
            "check whether that rank failed first; set `GLOO_SOCKET_IFNAME` or `NCCL_SOCKET_IFNAME` on all nodes; allow all "
            "ports between them"
        ),
        pattern=r"pair\.cc:\d+\] connect \[(?P<address>[^\]]+)\]:\d+: (?P<why>[^\n]*)"
        r"|NCCL WARN (?:Net : )?Connect to (?P<address2>[^\s<]+)(?:<\d+>)? failed ?: ?(?P<why2>Connection refused)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="loopback-address",
        title="a process offers a loopback address to the other nodes",
        cause=(
            "NCCL or gloo advertises 127.0.0.1, so its peers connect to themselves: `NCCL_SOCKET_IFNAME` names lo, the pod has "
            "no other interface, or its host name resolves to 127.0.0.1"
        ),
        remedy=(
            "set `NCCL_SOCKET_IFNAME` or `GLOO_SOCKET_IFNAME` to the interface between the nodes (usually `eth0`), and correct "
            "/etc/hosts"
        ),
        pattern=r"(?:Connect to|onnect\w* (?:to|with)|from peer) 127\.\d+\.\d+\.\d+<\d+>"
        r"|(?:connectFullMesh failed|SO_ERROR)(?s:.*?)remote=\[127\.0\.[01]\.1\]",
    ),
    Rule(
        id="http-error",
        title="the server `{host}` refuses a request (HTTP {code})",
        cause=(
            "401: the token or the password is missing or invalid; 403: the account has no right to this address; 404 and 410: "
            "the URL is wrong; 429: too many requests; 5xx: the server, or a gateway before it, is down or overloaded"
        ),
        remedy=(
            "check the URL (`curl -I`), the credentials in the environment and their rights; for 429 and 5xx relaunch later, "
            "and let one rank download while the others read the copy"
        ),
        pattern=r"(?P<code>40[134]|410|429|5\d\d) (?:Client|Server) Error: [^\n]*? for url: https?://(?P<host>[^/\s]+)",
        unless=("huggingface.co", "hf.co"),
    ),
    Rule(
        id="nccl-versions",
        title="the ranks use different versions of NCCL",
        cause="the images or the installed torch differ between the nodes, or `LD_LIBRARY_PATH` finds another libnccl first",
        remedy="use one image on all nodes, and remove other copies of libnccl from `LD_LIBRARY_PATH`",
        local_remedy="use one installation of torch, and remove other copies of libnccl from `LD_LIBRARY_PATH`",
        pattern=r"[Mm]ismatched NCCL version|NCCL version mismatch",
    ),
    Rule(
        id="ofi-error",
        title="libfabric or its NCCL plugin reports an error",
        cause=(
            "a transfer or a set-up step on the fabric (EFA) failed: the security group blocks it, the peer is gone, or memory "
            "cannot be locked"
        ),
        remedy=(
            "allow all traffic within the security group, check `fi_info -p efa` in the pod and the versions of aws-ofi-nccl "
            "and libfabric; `FI_LOG_LEVEL=warn` shows more"
        ),
        local_remedy="check `fi_info` and the versions of aws-ofi-nccl and libfabric; `FI_LOG_LEVEL=warn` shows more",
        pattern=r"NET/OFI .*(?:completed with error|failed|Unable to|Couldn't|unhandled|RC: -)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="privileged-port",
        title="the program may not listen on port {port}",
        cause="ports below 1024 need privileges that the user of the process does not have",
        remedy="use a port above 1023 (`rendezvous.port`)",
        pattern=r"failed to bind to \S*:(?P<port>\d+) \(errno: 13|port: (?P<port2>\d+)[^\n]*EACCES",
    ),
    Rule(
        id="address-not-local",
        title="the store's address does not belong to this machine",
        cause="a process can listen only on its own addresses: `MASTER_ADDR` or the endpoint names another host",
        remedy="set `rendezvous.endpoint` to the host of node rank 0, and give every node its own rank",
        pattern=r"EADDRNOTAVAIL|\(errno: 99 |\[Errno 99\] Cannot assign requested address",
    ),
    Rule(
        id="rendezvous-unreachable",
        title="the rendezvous store cannot be reached",
        cause=(
            "no process listens at the rendezvous endpoint, or its port is blocked, so the agent timed out connecting: on the "
            "first node no agent recognised the endpoint as its own address, or the address is wrong"
        ),
        remedy=(
            "set `rendezvous.endpoint` to the host name or address of the first node, check that its port is open (`nc -zv "
            "HOST PORT`), or set `is_host=1` in `rendezvous.conf` there"
        ),
        pattern=r"connect\(\) timed out\.(?: Original timeout)?|connection to the C10d store has failed",
        role=Role.SUSPECT,
        role_after_join=Role.CONSEQUENCE,
    ),
    Rule(
        id="certificate",
        title="a certificate is not trusted",
        cause="the server, or a proxy before it, presents a certificate whose authority the container does not know: {what}",
        remedy=(
            "add the authority to the image (`update-ca-certificates`) and set `REQUESTS_CA_BUNDLE` and `SSL_CERT_FILE` to its "
            "bundle; check the clock"
        ),
        local_remedy="set `REQUESTS_CA_BUNDLE` and `SSL_CERT_FILE` to a bundle with the authority; check the clock",
        pattern=(
            r"(?:CERTIFICATE_VERIFY_FAILED|certificate verify failed)\]?:? ?(?P<what>[^(\n]*)|SSLCertVerificationError"
            r"|x509: (?P<what2>.*)|SSL certificate problem: (?P<what3>.*)|certificate verification failed\.? ?(?P<what4>.*)"
        ),
    ),
    Rule(
        id="proxy-refused",
        title="the proxy refuses the connection",
        cause="`HTTPS_PROXY` or `HTTP_PROXY` names a proxy that does not answer or does not allow this host",
        remedy="correct the proxy, or add the host to `NO_PROXY` (cluster-internal names belong there)",
        pattern=r"ProxyError|Tunnel connection failed|[Cc]annot connect to proxy",
    ),
    Rule(
        id="mesh-proxy",
        title="the sidecar of a service mesh breaks the connection",
        cause=(
            "Envoy (Istio, Linkerd) intercepts the connections between the pods and answers itself: the mesh does not know the "
            "process group's ports"
        ),
        remedy='switch off the injection for the job: the annotation `sidecar.istio.io/inject: "false"` on its pods',
        pattern=r"upstream connect error or disconnect|istio-envoy|RBAC: access denied|no healthy upstream",
    ),
    Rule(
        id="connect-hang",
        title="the process group does not get past its first connections",
        cause=(
            "the log ends right after the store accepted the connection: other ranks have not started, or the sidecar of a "
            "service mesh (Istio, Linkerd) answers for the peers, so the ranks wait for each other"
        ),
        remedy='check that every pod runs, and switch off the mesh for the job: annotation `sidecar.istio.io/inject: "false"`',
        local_remedy="check that every process runs: `kfjob status {job}`",
        subject=Subject.VIEW,
        severity=Severity.WARNING,
    ),
    Rule(
        id="address-families",
        title="gloo's processes chose addresses of different families (IPv4 and IPv6)",
        cause="each process takes the first address of its host name or its interface; some of these are IPv6, some IPv4",
        remedy=(
            "set `GLOO_SOCKET_IFNAME` on every node to the interface between the nodes, and remove IPv6 addresses from it or "
            "from /etc/hosts; `NCCL_SOCKET_FAMILY=AF_INET` does the same for NCCL"
        ),
        pattern=r"ss1\.ss_family == ss2\.ss_family",
    ),
    Rule(
        id="gloo-hostname",
        title="the host name `{name}` has no address, so gloo finds no interface",
        cause="gloo resolves the own host name of the machine, which is neither in DNS nor in /etc/hosts",
        remedy="give the host name an address in /etc/hosts, or set `GLOO_SOCKET_IFNAME` to the interface between the nodes",
        pattern=r"rp != nullptr[^\n]*Unable to find address for: (?P<name>\S+)|Unable to resolve hostname to a \(local\)"
        r" address(?:[^\n]*: (?P<name2>\S+))?",
    ),
)
