"""Hydra, YAML, packages in a wrong version, and services that refuse or do not answer."""

from kfjob.joblog.diagnose.rule import Role, Rule

RULES = (
    Rule(
        id="hydra-override",
        futile_after=1,
        title="the configuration has no key `{name}`",
        cause="the command line or the code sets or reads a key that the configuration does not define: it is misspelt or new",
        remedy="correct the key in `command`; in Hydra `+{name}=VALUE` adds a new one",
        pattern=(
            r"Could not override '(?P<name>[^']*)'|(?:ConfigAttributeError|ConfigKeyError): (?:Missing key "
            r"|Key ')?(?P<name2>[\w.]+)"
            r"|Key '(?P<name3>[^']*)' is not in struct"
        ),
    ),
    Rule(
        id="setting-missing",
        futile_after=1,
        title="the setting `{name}` has no value",
        cause="the configuration declares it as mandatory (`???`) or refers to another value that is not set",
        remedy="set it in `command` (`{name}=VALUE`), in the configuration file, or in `env` if it is an environment variable",
        pattern=(
            r"Missing mandatory value: (?P<name>[\w.]+)"
            r"|Interpolation key '(?P<name2>[^']*)' not found"
            r"|Environment variable '(?P<name3>\w+)' not found"
        ),
        unless=("TORCHELASTIC_",),
    ),
    Rule(
        id="config-missing",
        futile_after=1,
        title="Hydra does not find the configuration `{name}`",
        cause="the folder or the name of the configuration is wrong, or the image does not contain it",
        remedy="check `--config-path`, `--config-name` and the working directory; the message lists the choices",
        pattern=r"annot find primary config '?(?P<name>[^'\s]+)|In '[^']*': Could not find '(?P<name2>[^']*)'"
        r"|MissingConfigException|rimary config directory not found",
    ),
    Rule(
        id="storage-throttled",
        title="the object storage throttles the requests: there are too many",
        cause="all ranks and loader workers read small objects under one prefix, faster than S3 (or its like) allows",
        remedy=(
            "read fewer and larger shards, spread them over several prefixes, use fewer loader workers, and retry with growing "
            "pauses (`AWS_RETRY_MODE=adaptive` and `AWS_MAX_ATTEMPTS=10` in `env`)"
        ),
        pattern=(
            r"\((?:SlowDown|RequestLimitExceeded|ThrottlingException|Throttling)\)|reduce your request rate"
            r"|rateLimitExceeded"
        ),
    ),
    Rule(
        id="clock-skew",
        title="the clock of the node is wrong",
        cause="a service compares the time of the request with its own, and they differ by more than it accepts",
        remedy="synchronise the clock of the node (`chronyc tracking`), and relaunch on another node meanwhile",
        local_remedy="synchronise the clock (`chronyc tracking`, or the NTP service)",
        pattern=r"RequestTimeTooSkewed|Signature not yet current|certificate is not yet valid|Signature expired: ",
    ),
    Rule(
        id="service-refused",
        title="nothing listens at `{host}:{port}`",
        cause="the service that the program calls has not started yet, has ended, or listens at another port",
        remedy="check that the service runs, its port and its name; wait for it before the program calls it",
        pattern=r"ConnectionPool\(host='(?P<host>[^']+)', port=(?P<port>\d+)\)[^\n]*Connection refused"
        r"|Error 111 connecting to (?P<host2>[^:\s]+):(?P<port2>\d+)",
        unless=("huggingface.co",),
    ),
    Rule(
        id="service-unreachable",
        title="`{host}` does not answer",
        cause="the request fails ({what}): no way to the internet, a firewall that blocks it, or a service that is down",
        remedy="check the route (`curl -v`), `HTTPS_PROXY` and the timeout; trackers can work offline (`WANDB_MODE=offline`)",
        pattern=r"ConnectionPool\(host='(?P<host>[^']+)', port=\d+\)[^\n]*?(?P<what>timed out|TimeoutError"
        r"|\[Errno (?:101|113)\] [\w ]+)|(?P<what2>Connect timeout) on endpoint URL: \"https?://(?P<host2>[^/\"]+)",
        unless=("huggingface.co", "hf.co"),
        role=Role.SUSPECT,
    ),
    Rule(
        id="python-too-old",
        futile_after=1,
        title="the program needs a newer Python than the image has",
        cause="it uses a language feature of a later version ({what}), such as `int | None` in annotations (Python 3.10)",
        remedy="use an image with a newer Python, or add `from __future__ import annotations`",
        local_remedy="use a newer Python, or add `from __future__ import annotations`",
        pattern=r"(?P<what>unsupported operand type\(s\) for \|: '(?:type|NoneType|_GenericAlias|types\.\w+)'"
        r"|'(?:type|ABCMeta)' object is not subscriptable|No module named 'tomllib')",
    ),
    Rule(
        id="openssl-old",
        title="Python's OpenSSL is too old for urllib3",
        cause="urllib3 2 needs OpenSSL 1.1.1 or newer, and this Python was built with an older one or with LibreSSL",
        remedy="pin `urllib3<2`, or use an image with a newer Python and OpenSSL",
        local_remedy="pin `urllib3<2`, or use a Python with a newer OpenSSL",
        pattern=r"urllib3 v2(?:\.0)? only supports OpenSSL",
        in_warnings=False,
    ),
    Rule(
        id="cudnn-version",
        title="another version of cuDNN is loaded than the one that torch was built with",
        cause="torch was compiled for cuDNN {built} and finds {loaded}: the system or `LD_LIBRARY_PATH` has another copy",
        remedy="remove the folder with the other cuDNN from `LD_LIBRARY_PATH`, so that torch uses the one of its own wheel",
        pattern=(
            r"cuDNN version incompatibility: PyTorch was compiled\s+against \((?P<built>[\d, ]+)\) but found runtime version"
            r" "
            r"\((?P<loaded>[\d, ]+)\)|cuDNN version incompatibility"
        ),
    ),
    Rule(
        id="package-named",
        title="package `{name}` is missing or too old",
        cause="a library needs it for what the program asks for, and the installed version is missing or does not fit",
        remedy="add `pip install -U {name}` to the Dockerfile, then run `kfjob push-image`",
        local_remedy="run `pip install -U {name}`",
        pattern=r"(?:Import|Value|Runtime)Error: [^\n]*requires? `(?P<name3>[\w-]+)`[^\n]* to be installed"
        r"|ImportError: [^\n]*requires? the (?:latest version of )?(?P<name2>[\w-]+)(?: library|[\s.]*$)"
        r"|ImportError: [^\n]*[Pp]lease install [`'\"](?P<name4>[A-Za-z][\w.\[\]-]*\w\]?)[`'\"]"
        r"|(?:ImportError|ModuleNotFoundError|RuntimeError|ValueError): [^\n]*pip3? install (?:-U |--upgrade )?[`'\"]?"
        r"(?P<name>[A-Za-z][\w.\[\]-]*\w\]?)",
    ),
    Rule(
        id="flash-attention-missing",
        title="flash-attn is not installed",
        cause="the model needs FlashAttention 2, and the package is missing or does not fit the installed torch",
        remedy='install a wheel of flash-attn for the installed torch and CUDA, or use `attn_implementation="sdpa"`',
        pattern=r"FlashAttention2 has been toggled on|Flash Attention 2 is not available|flash_attn seems to be not installed",
    ),
)
