"""The pod finds no node, cannot start, was evicted or killed, or the job exceeded a limit."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity, Subject

RULES = (
    Rule(
        id="secret-missing",
        title="secret `{name}` is missing, or lacks the key",
        cause="the pod reads a value from it, and the kubelet cannot find it in the job's namespace",
        remedy="create it in the job's namespace: `kubectl create secret generic {name} --from-literal=KEY=…`",
        subject=Subject.POD,
        pattern=r"secrets? \"(?P<name>[^\"]+)\" not found|couldn't find key \S+ in Secret [^/\s]+/(?P<name2>\S+)",
    ),
    Rule(
        id="config-map-missing",
        title="ConfigMap `{name}` is missing, or lacks the key",
        cause="the pod reads a value or files from it, and the kubelet cannot find it in the job's namespace",
        remedy="create it in the job's namespace: `kubectl create configmap {name} --from-file=…`",
        subject=Subject.POD,
        pattern=r"configmaps? \"(?P<name>[^\"]+)\" not found|couldn't find key \S+ in ConfigMap [^/\s]+/(?P<name2>\S+)",
    ),
    Rule(
        id="container-config",
        title="the container cannot be created",
        cause="the kubelet's message gives the reason",
        remedy="`kubectl describe pod {pod}` shows the whole message",
        subject=Subject.POD,
        pattern=r"CreateContainer(?:Config)?Error",
    ),
    Rule(
        id="claim-missing",
        title="volume claim `{name}` does not exist",
        cause="the job mounts a PersistentVolumeClaim that is not in its namespace",
        remedy="create the claim, or correct `volumes`",
        subject=Subject.POD,
        pattern=r"persistentvolumeclaim \"(?P<name>[^\"]+)\" not found",
    ),
    Rule(
        id="claim-pending",
        title="a volume claim of the job is not bound",
        cause="no volume fits the claim: there is no storage class, no capacity, or no driver",
        remedy="`kubectl describe pvc` shows the reason; a volume for many pods needs access mode ReadWriteMany",
        subject=Subject.POD,
        pattern=r"unbound immediate PersistentVolumeClaims|didn't find available persistent volumes to bind"
        r"|volume node affinity conflict",
        role=Role.SUSPECT,  # an event of the claim gives the reason
    ),
    Rule(
        id="volume-attached-elsewhere",
        title="a volume of the job is attached to another node",
        cause="a ReadWriteOnce volume can be attached to one node only, and another pod uses it",
        remedy=("use a ReadWriteMany volume (FSx for Lustre, EFS, NFS) for data that all workers share, or stop the other pod"),
        subject=Subject.POD,
        pattern=r"Multi-Attach error",
    ),
    Rule(
        id="no-node-so-large",
        title="no node has as much {what} as the pod requests",
        cause="each node that it may use has less, also when it runs nothing else (GPUs count only where a device plugin runs)",
        remedy="waiting does not help: lower `resources`, or add nodes (`kubectl describe nodes` shows what is allocatable)",
        subject=Subject.POD,
        # on no node would the end of other pods help (v1.34 noderesources/fit.go)
        pattern=r"nodes are available: (?:\d+ node[^,]*, )*\d+ Insufficient (?P<what>[\w./-]*\w)[,.] "
        r".*preemption: 0/\d+ nodes are available: \d+ Preemption is not helpful for scheduling\.?$",
    ),
    Rule(
        id="no-capacity",
        title="no node has enough {what} free",
        cause="other pods use it, or no node has as much",
        remedy="`kubectl describe nodes` shows what is allocatable and what is in use; wait, lower `resources`, or add nodes",
        subject=Subject.POD,
        pattern=r"Insufficient (?P<what>[\w./-]*\w)|(?P<what2>Too many pods)",
    ),
    Rule(
        id="taint",
        title="nodes have a taint that the job does not tolerate",
        cause="the scheduler may not use them; GPU nodes often have the taint nvidia.com/gpu",
        remedy=(
            "add `scheduling.tolerations`; `kubectl get nodes -o custom-columns=N:.metadata.name,T:.spec.taints` shows the "
            "taints"
        ),
        subject=Subject.POD,
        pattern=r"untolerated taint",
    ),
    Rule(
        id="no-node-matches",
        title="no node matches the job's node selector or affinity",
        cause=(
            "no node has these labels (an instance type that the cluster lacks, or another zone), or the job avoids the nodes "
            "that have them (`relaunch --avoid-node`, or the guard after two failures of a node)"
        ),
        remedy="check `instance` and `scheduling.node_selector` against `kubectl get nodes --show-labels`",
        subject=Subject.POD,
        pattern=r"didn't match (?:Pod's node affinity/selector|pod (?:anti-)?affinity|pod topology spread)",
    ),
    Rule(
        id="gang-does-not-fit",
        title="the cluster has too little {what} free for all pods of the job at once",
        cause="the gang scheduler starts all pods of the job or none",
        remedy="`kubectl describe nodes` shows what is in use; wait, lower `nodes` or `resources`, or add nodes",
        subject=Subject.POD,
        pattern=r"resource gap: map\[(?P<what>[\w./-]*\w):",  # scheduler-plugins v0.33.5, pkg/coscheduling/core/core.go
    ),
    Rule(
        id="unschedulable",
        title="no node can take the pod",
        cause="the scheduler's message gives the reason",
        remedy="`kubectl describe pod {pod}` shows the whole message",
        subject=Subject.POD,
        pattern=r"Unschedulable|SchedulingGated|nodes are available",
    ),
    Rule(
        id="out-of-memory",
        title="the container was killed: it used more memory than its limit",
        cause="the kernel killed it (OOMKilled)",
        remedy="raise `resources.memory`; fewer loader workers, a model on the meta device, and no CPU offload need less",
        subject=Subject.POD,
        pattern=r"OOMKilled",
    ),
    Rule(
        id="ephemeral-storage-full",
        title="the pod was evicted: it filled the node's local disk",
        cause=(
            "data outside of its volumes (caches, checkpoints in the container, core dumps) exceeded its limit, or left the "
            "node too little"
        ),
        remedy="write to a volume what the message names, or request more `ephemeral-storage`; an emptyDir needs a larger size",
        subject=Subject.POD,
        pattern=r"low on resource: ephemeral-storage|ephemeral local storage usage exceeds|mptyDir volume .* exceeds the",
    ),
    Rule(
        id="evicted",
        title="the pod was evicted from its node",
        cause="the node ran low on memory, disk or process ids, was drained, or a pod with higher priority came",
        remedy="request what the pod really uses (`resources`), raise the priority, then run `kfjob relaunch {job}`",
        subject=Subject.POD,
        pattern=r"\bEvicted\b|Preempt(?:ed|ing|ion)|was low on resource|NodeShutdown|\bShutdown\b|DisruptionTarget",
    ),
    Rule(
        id="pod-deleted",
        title="pod `{pod}` was deleted while the job ran",
        cause="a person, a node drain, an autoscaler or a controller deleted it; the other ranks lost their connection to it",
        remedy=(
            "`kubectl get events` in the job's namespace and the cluster's audit log show what deleted it; run `kfjob relaunch "
            "{job}`, which resumes from the last checkpoint if its program supports that"
        ),
        subject=Subject.VIEW,
    ),
    Rule(
        id="node-lost",
        title="the node of pod `{pod}` does not answer",
        cause="the machine is down or disconnected; Kubernetes keeps the pod until the node is back or is removed",
        remedy="check `kubectl get nodes`; if the machine is off, `kfjob stop {job} --force`, then `kfjob relaunch {job}`",
        subject=Subject.POD,
        pattern=r"NodeLost|NodeNotReady|^Unknown \S",
    ),
    Rule(
        id="container-start",
        title="the container's command cannot be started",
        local_title="the command cannot be started",
        cause="the executable does not exist, or may not be run: {what}",
        remedy="check `command` and the image: `docker run --entrypoint which IMAGE torchrun`",
        local_remedy="check `command`: the executable must be on the PATH",
        subject=Subject.POD,
        pattern=r"^.*(?P<what>exec: \"[^\"]*\": executable file not found in \$PATH|stat [^:]*: no such file or directory)"
        r"|^.*(?P<what2>`[^`]*` cannot be started: .*)|StartError|RunContainerError|ContainerCannotRun",
    ),
    Rule(
        id="deadline",
        title="the job exceeded its deadline",
        cause="it was active for longer than `run.deadline` allows",
        remedy=(
            "raise the deadline, or resume from the last checkpoint with `kfjob relaunch {job}`; an operator older than v1.9.4 "
            "has deleted the pods and their logs"
        ),
        local_remedy="raise the deadline, or resume from the last checkpoint with `kfjob relaunch {job}`",
        subject=Subject.JOB,
        pattern=r"longer than specified deadline|DeadlineExceeded",
        role=Role.SUSPECT,
    ),
    Rule(
        id="backoff-limit",
        title="the job failed too often",
        cause="its pods were restarted as often as `run.backoff_limit` allows",
        remedy=(
            "find out why the pods ended; an operator older than v1.9.4 has deleted them and their logs, and `kfjob submit "
            "--follow` keeps the logs"
        ),
        local_remedy="`kfjob logs {job}` shows why the processes ended",
        subject=Subject.JOB,
        pattern=r"reached the specified backoff limit|BackoffLimitExceeded",
        role=Role.SYMPTOM,
    ),
    Rule(
        id="suspended",
        title="the job is suspended",
        cause="it waits in a queue (Kueue) or was suspended by hand; it has no pods until it is resumed",
        remedy="`kfjob resume {job}` creates its pods; in a queue, `kubectl get workloads` in its namespace shows its position",
        subject=Subject.JOB,
        pattern=r"^Suspended",
        severity=Severity.WARNING,
    ),
    Rule(
        id="operator-missing",
        title="the training operator does not process the job",
        cause="no status after {seconds} s: the operator is not installed, does not run, or watches other namespaces",
        remedy=(
            "check `kubectl get deployments -A | grep training-operator`; `kubectl apply --server-side -k manifests/` installs "
            "the operator"
        ),
        subject=Subject.VIEW,
    ),
    Rule(
        id="no-pods",
        title="the operator has created no pods for the job",
        cause="no pods after {seconds} s: a quota, an admission webhook or a missing service account blocks them",
        remedy="`kubectl get events` in the job's namespace shows the refusal, and `kubectl describe quota` the quota",
        subject=Subject.VIEW,
    ),
    Rule(
        id="limit-exceeded",
        title="kfjob stopped the job: {what}",
        cause="the job exceeded a limit of its `watchdog`, and no earlier error explains it",
        remedy="`kfjob logs {job} --tail 20` shows what each pod did last; raise the limit if the job was healthy",
        subject=Subject.JOB,
        pattern=r"LimitExceeded: (?P<what>.*)",
        role=Role.SUSPECT,
    ),
    Rule(
        id="crash-loop",
        title="the container ends again and again",
        local_title="the pod's process ends again and again",
        cause="it restarts after growing pauses, and the job may still report `Running`; its last lines show the reason",
        remedy="`kfjob logs {job} --pod {pod} --previous` shows the last lines of the previous container",
        subject=Subject.POD,
        pattern=r"CrashLoopBackOff",
        role=Role.SYMPTOM,
    ),
    Rule(
        id="no-pod-address",
        title="the node has no IP address left for the pod",
        cause="the network plugin could not assign one: the addresses of the node or its subnet are used up",
        remedy="use larger subnets, prefix delegation, or fewer pods per node; `host_network` needs no address",
        subject=Subject.POD,
        pattern=r"FailedCreatePodSandBox .*(?:failed to assign an IP address|no IP addresses available|ENI)",
    ),
    Rule(
        id="gpu-runtime-missing",
        title="the node's container runtime cannot use the NVIDIA runtime",
        cause=(
            "the NVIDIA container toolkit is not installed on the node, or containerd is not configured for it (the GPU "
            "operator does both, which takes minutes on a new node)"
        ),
        remedy=(
            "check the GPU operator's pods on that node, or install nvidia-container-toolkit and run `nvidia-ctk runtime "
            "configure`; use a node image with GPU support"
        ),
        subject=Subject.POD,
        # containerd internal/cri/config GetSandboxRuntime; fork/exec of Go's os/exec in the shim; moby daemon/runtime_unix.go
        pattern=r"no runtime for \"nvidia\" is configured|nvidia-container-runtime\S*: no such file or directory"
        r"|unknown or invalid runtime name: nvidia|could not select device driver",
    ),
    Rule(
        id="sandbox-failed",
        title="the node cannot set up the pod's network or sandbox",
        cause="{what}",
        remedy="check the network plugin's pods on that node in kube-system, or drain the node",
        subject=Subject.POD,
        pattern=r"(?:FailedCreatePodSandBox|NetworkNotReady) restarts=\d+: (?P<what>.*)",
    ),
    Rule(
        id="mount-failed",
        title="a volume of the pod cannot be mounted",
        cause="{what}",
        remedy=(
            "check that the volume exists, that the node can reach its server (security groups for FSx and EFS), and that the "
            "storage driver runs on that node"
        ),
        subject=Subject.POD,
        pattern=r"(?:FailedMount|FailedAttachVolume|FailedMapVolume) restarts=\d+: (?P<what>.*)",
    ),
)
