"""Shell scripts and the commands in them."""

from kfjob.joblog.diagnose.rule import Role, Rule

_COMMAND = r"^(?P<command>[\w./+-]{1,200}): (?P<what>[^\n]{0,400}?)"
"""A command's name and its message: `mkdir: cannot create directory '/out': Permission denied`."""

RULES = (
    Rule(
        id="script-line-ends",
        futile_after=1,
        title="a script has Windows line ends",
        cause="its lines end with a carriage return, which the shell takes as part of the interpreter or of a command",
        remedy="convert it (`dos2unix SCRIPT`), and write `*.sh text eol=lf` into .gitattributes",
        pattern=r"\^M: bad interpreter|\\r\S{1,3}: (?:command not found|No such file)|unexpected token \S*\\r",
    ),
    Rule(
        id="script-variable",
        futile_after=1,
        title="the variable `{name}` that a script needs is not set",
        cause="the shell stops at a variable without a value (`set -u` or `${{NAME:?}}`)",
        remedy="set it in `env`, or give it a default in the script (`${{NAME:-value}}`)",
        pattern=r"(?:line \d+|: \d+): (?P<name>\w+): (?:unbound variable|parameter (?:null or )?not set)",
    ),
    Rule(
        id="script-syntax",
        futile_after=1,
        title="the shell cannot read a script or a command: {what}",
        cause="a quote or a bracket is not closed, or the script needs another shell than sh",
        remedy="check the quotes in `command` (`kfjob render` shows what the shell gets), and name the shell: `bash -c`",
        pattern=r"(?:line \d+|: \d+): (?P<what>syntax error[^\n]*|unexpected EOF while[^\n]*|Syntax error: [^\n]*)",
    ),
    Rule(
        id="conda-activate",
        title="`conda activate` does not work in this shell",
        cause="the script did not load conda's functions, so the commands below run in another environment",
        remedy='put `source "$(conda info --base)/etc/profile.d/conda.sh"` before it, or use the full path of the python',
        pattern=r"not been properly configured to use 'conda activate'|Run 'conda init' before 'conda activate'",
        role=Role.SUSPECT,
        in_script=True,
    ),
    Rule(
        id="script-interpreter",
        futile_after=1,
        title="the program to start, or the interpreter in its first line, does not exist",
        cause="the kernel finds no file to run: the path is wrong, the `#!` line names a missing shell, or it ends with `\\r`",
        remedy="check `command`, the script's `#!` line and its line ends: `docker run IMAGE head -1 SCRIPT`",
        local_remedy="check `command`, the script's `#!` line and its line ends",
        pattern=r"bad interpreter: |^exec \S+: no such file or directory"
        r"|exec user process caused:? .*no such file or directory",
    ),
    Rule(
        id="git-access",
        title="git cannot read a repository",
        cause="git reports: {what}",
        remedy="copy the code into the image, or pass a token or a key of the repository as a secret",
        local_remedy="check the URL, and the token or the key of the repository",
        pattern=r"fatal: (?P<what>could not read (?:Username|Password)[^\n]*|Authentication failed for[^\n]*"
        r"|repository '[^']*' not found[^\n]*|Could not read from remote repository[^\n]*)|(?P<what2>Permission denied "
        r"\(publickey[^\n]*)",
        role=Role.SUSPECT,
        in_script=True,
    ),
    Rule(
        id="pip-version-missing",
        title="pip finds no version of `{name}`",
        cause="the index has no such package or version for this Python and platform, or it cannot be reached",
        local_remedy="check the name, the Python version, and `PIP_INDEX_URL`",
        remedy="install it when you build the image; check the name, the Python version, and `PIP_INDEX_URL`",
        pattern=r"(?:Could not find a version that satisfies the requirement|No matching distribution found for) (?P<name>\S+)",
        role=Role.SUSPECT,
        in_script=True,
    ),
    Rule(
        id="command-permission",
        title="`{command}` has no permission: {what}",
        cause="the user of the process may not access the path, its file system is read-only, or a script is not executable",
        remedy=(
            "write to a volume, or under a new name: the files of the image and of `--code` belong to root; for a volume, set "
            "its group (`fsGroup` in `pod.security_context`) and no `read_only`; `chmod +x` a script that the image contains"
        ),
        local_remedy="change the owner or the mode of the path, or use another folder; `chmod +x` a script",
        pattern=rf"{_COMMAND}: (?:Permission denied|Read-only file system)$",
        unless=("Errno", "(publickey"),
        role=Role.SUSPECT,
        in_script=True,
    ),
    Rule(
        id="command-file-missing",
        title="`{command}` does not find a file: {what}",
        cause="the path does not exist in the container: a volume is not mounted, or the image does not contain it",
        remedy="compare `volumes` with the path (`kfjob render` shows the mount paths); `docker run IMAGE ls` shows the image",
        local_remedy="check the path on this machine; for a path in one of the `volumes`, check its `host_path`",
        pattern=rf"{_COMMAND}: No such file or directory$",
        unless=("Errno", "Error: "),
        role=Role.SUSPECT,
        in_script=True,
    ),
    Rule(
        id="logged-fatal",
        title="the program logs a fatal error: {what}",
        cause="its logger calls the message critical or fatal; the lines before it may give the reason",
        remedy="read the lines before the message: the program ends by its own decision",
        unless=("not a git repository", "dubious ownership", "No names found", "ambiguous argument"),  # of version look-ups
        pattern=r"(?:^|[\s|\[(<-])(?:CRITICAL|FATAL)[\s|\])>:-]{1,12}(?P<what>\S[^\n]*)|^fatal: (?P<what2>[^\n]*)",
        role=Role.SUSPECT,
        in_script=True,
    ),
)
