"""The operator cannot create pods, a claim has no volume, or the job waits in a queue."""

from kfjob.joblog.diagnose.rule import Role, Rule, Severity, Subject

RULES = (
    Rule(
        id="quota-exceeded",
        title="the namespace's quota `{name}` is used up",
        cause=("the operator may not create all pods of the job: it requests {requested}, and {used} of {limited} are used"),
        remedy=(
            "check `kubectl describe quota` in the job's namespace; stop other jobs, request less, or have the quota raised; "
            "the operator retries by itself"
        ),
        subject=Subject.EVENT,
        pattern=r"exceeded quota: (?P<name>[^,]+), requested: (?P<requested>.+), used: (?P<used>.+), limited: (?P<limited>.+)",
    ),
    Rule(
        id="quota-requires-resources",
        title="the namespace's quota `{name}` requires {what}",
        cause="a pod that does not specify a resource of the quota is refused",
        remedy="set it in `resources`, or give the namespace a LimitRange with defaults",
        subject=Subject.EVENT,
        pattern=r"failed quota: (?P<name>[^:]+): must specify (?P<what>[\w./-]+)",
    ),
    Rule(
        id="limit-range",
        title="the pods request more than the namespace allows per pod or container",
        cause="a LimitRange refuses them: {what}",
        remedy="`kubectl describe limitrange` in the job's namespace shows the limits; change `resources`",
        subject=Subject.EVENT,
        pattern=r"forbidden: (?P<what>\[?(?:maximum|minimum) [\w.-]+ usage per (?:Container|Pod) is .*)",
    ),
    Rule(
        id="pod-security",
        title="the namespace's pod security level forbids the pods",
        cause="{what}",
        remedy=(
            "remove what it forbids (host network, host paths, privileges), or use a namespace with another "
            "`pod-security.kubernetes.io/enforce` label"
        ),
        subject=Subject.EVENT,
        pattern=r"violates PodSecurity (?P<what>.*)",
    ),
    Rule(
        id="webhook-down",
        title="an admission webhook of the cluster does not answer",
        cause="the API server must call `{name}` before it accepts an object, and cannot: {what}",
        remedy=(
            "check `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`, then the pods behind the "
            "webhook's service; the operator retries by itself"
        ),
        subject=Subject.EVENT,
        pattern=r"failed calling webhook \"(?P<name>[^\"]+)\": (?P<what>.*)",
    ),
    Rule(
        id="webhook-denied",
        title="a webhook or policy of the cluster refuses the pods",
        cause="`{name}` reports: {what}",
        remedy="change what it reports, or ask the owner of the policy",
        subject=Subject.EVENT,
        pattern=r"admission webhook \"(?P<name>[^\"]+)\" denied the request: (?P<what>.*)"
        r"|ValidatingAdmissionPolicy '(?P<name2>[^']+)' with binding '[^']+' denied request: (?P<what2>.*)",
    ),
    Rule(
        id="service-account-missing",
        title="service account `{name}` does not exist",
        cause="the job's pods run as this account, and it is not in the job's namespace",
        remedy="create it, or correct `service_account`",
        subject=Subject.EVENT,
        pattern=r"service ?account [\w./-]+: serviceaccount \"(?P<name>[^\"]+)\" not found",
    ),
    Rule(
        id="gang-scheduler-missing",
        title="the cluster does not have the gang scheduler of the job",
        cause="nothing in it knows pod groups, so the job gets no pods",
        remedy="remove `scheduling.gang`, or have the scheduler installed (docs/guides/queues.md)",
        subject=Subject.EVENT,
        pattern=r"no matches for kind \"PodGroup\"",
    ),
    Rule(
        id="pods-refused",
        title="the operator cannot create the job's pods or services",
        cause="the API server refuses them: {what}",
        remedy="`kubectl get events` in the job's namespace shows every refusal",
        subject=Subject.EVENT,
        pattern=r"(?:FailedCreate(?:Pod|Service)?|TrainJobResourcesCreationFailed): (?:Error creating: )?(?P<what>.*)",
        unless=("already exists",),  # the operator has made it a moment ago, and its cache does not show it yet
    ),
    Rule(
        id="operator-refuses-spec",
        title="the operator rejects the job",
        cause="{what}",
        remedy="`kfjob validate` and `kfjob submit --dry-run=server` find most such problems before a submit",
        subject=Subject.EVENT,
        pattern=r"^\w+ \w*FailedValidation: (?P<what>.*)",
    ),
    Rule(
        id="storage-class-missing",
        title="storage class `{name}` does not exist",
        cause="a volume claim of the job names it, so nothing can provide the volume",
        remedy="`kubectl get storageclass` lists the existing ones; create the claim again, or install the driver",
        subject=Subject.EVENT,
        pattern=r"storageclass(?:\.storage\.k8s\.io)? \"(?P<name>[^\"]+)\" not found",
    ),
    Rule(
        id="claim-not-provided",
        title="a volume claim of the job gets no volume",
        cause="{what}",
        remedy="check `kubectl describe pvc` in the job's namespace, and the log of the storage driver",
        subject=Subject.EVENT,
        pattern=r"PersistentVolumeClaim (?:ProvisioningFailed|FailedBinding): (?P<what>.*)",
    ),
    Rule(
        id="pod-preempted",
        title="the pod was preempted by one with higher priority",
        cause="the scheduler removed it from its node: {what}",
        remedy="give the job a higher priority class, or run `kfjob relaunch {job}` when there is capacity",
        subject=Subject.EVENT,
        pattern=r" Preempted: (?P<what>.*)",
    ),
    Rule(
        id="pod-evicted-by-taint",
        title="the pod was evicted because of a taint on its node",
        cause=("the node got a taint that the pod does not tolerate: it is not ready, is drained, or is interrupted (spot)"),
        remedy="check `kubectl get nodes`, then run `kfjob relaunch {job}`, which resumes from the last checkpoint",
        subject=Subject.EVENT,
        pattern=r"TaintManagerEviction: Marking for deletion",
    ),
    Rule(
        id="node-not-ready",
        title="the node of pod `{pod}` does not answer",
        cause="the node's kubelet has stopped reporting: the machine is down, disconnected, or out of memory",
        remedy=(
            "check `kubectl get nodes`; the operator waits for such a pod indefinitely: remove the node or run `kubectl delete "
            "pod {pod} --force`, then run `kfjob relaunch {job}`"
        ),
        subject=Subject.EVENT,
        pattern=r"NodeNotReady: ",
    ),
    Rule(
        id="queue-missing",
        title="queue `{name}` does not exist",
        cause="the job waits in a Kueue queue that does not exist or is being deleted: {what}",
        remedy="`kubectl get localqueues` in the job's namespace lists the queues; correct `scheduling.queue`",
        subject=Subject.QUEUE,
        pattern=r"(?P<what>(?:LocalQueue|ClusterQueue) (?P<name>\S+) (?:doesn't exist|is terminating or missing))",
    ),
    Rule(
        id="queue-inactive",
        title="queue `{name}` is stopped",
        cause="an administrator has stopped it, or a flavor or an admission check that it needs is missing",
        remedy="`kubectl describe clusterqueue` shows the reason",
        subject=Subject.QUEUE,
        pattern=r"(?:LocalQueue|ClusterQueue) (?P<name>\S+) is (?:inactive|stopped)|QueueStopped",
    ),
    Rule(
        id="queue-too-small",
        title="the queue can never hold the job",
        cause="the job requests more than the queue's whole quota: {what}",
        remedy="use fewer nodes or processes, or another queue; `kubectl describe clusterqueue` shows its quota",
        subject=Subject.QUEUE,
        pattern=r"(?P<what>insufficient quota for .*maximum capacity[^,;]*|resource \S+ unavailable in ClusterQueue)",
    ),
    Rule(
        id="queue-waits",
        title="the job waits in its queue",
        cause="other jobs use the quota: {what}",
        remedy="the job starts by itself; `kubectl get workloads` in the job's namespace shows its position",
        subject=Subject.QUEUE,
        pattern=r"(?P<what>insufficient unused quota .*)|^(?:Pending|WaitForStart|AdmissionCheck)\b",
        severity=Severity.WARNING,
    ),
    Rule(
        id="queue-preempted",
        title="the queue has evicted the job",
        cause="{what}",
        remedy=("the job starts again when there is quota, and resumes from its last checkpoint if its program supports that"),
        subject=Subject.QUEUE,
        pattern=r"^(?P<what>(?:Preempted|NodeFailures|PodsReadyTimeout|Deactivated|RequeuingLimitExceeded|Inactive)\b.*)",
        severity=Severity.WARNING,
        role=Role.SUSPECT,
    ),
)
