"""An agent or etcd on this machine."""

from kfjob.joblog.diagnose.rule import Role, Rule, Subject

RULES = (
    Rule(
        id="local-not-started",
        title="an agent was not started on this machine",
        cause="{what}",
        remedy="",
        subject=Subject.POD,
        pattern=r"NotStarted (?:exit=\S+ )?restarts=\d+: (?P<what>.*)",
        role=Role.CONSEQUENCE,
    ),
    Rule(
        id="local-etcd-failed",
        title="the job's own etcd has ended",
        cause="{what}",
        remedy="see the etcd log that the message names; `apt-get install etcd-server` installs a version that fits",
        subject=Subject.JOB,
        pattern=r"EtcdFailed: (?P<what>.*)",
    ),
)
