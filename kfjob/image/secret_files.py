"""Recognise files that hold secrets, by their names, their folders and the beginning of their content. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from kfjob.redaction.token_shapes import find_token

MAX_CONTENT_BYTES = 1024 * 1024
"""Size of a file whose content is searched for secrets; larger files are judged by their names only."""

_NAMES = re.compile(
    r"\.env(rc|[._-](?!(example|sample|template|dist|defaults)$).*)?|.*\.(pem|key|p12|pfx|pkcs12|kdbx|jks|keystore|ppk)"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|[._]netrc|\.pypirc|\.npmrc|\.git-credentials|\.htpasswd|\.pgpass|\.my\.cnf|\.boto|\.s3cfg"
    r"|\.vault-token|\.dockercfg|\.dockerconfigjson|\.terraformrc|\.(ba|z|python_|psql_|mysql_)sh_history|\.(python|psql|mysql)_history"
    r"|kubeconfig(\.(?!py$|go$|md$|html$).*)?|.*\.kubeconfig|(?>(?:(?!service[-_]?account).)*)service[-_]?account.*\.json|client_secret.*\.json|application_default_credentials\.json"
    r"|(aws_?)?credentials(\.(json|csv|ini|toml|ya?ml|db|tfrc\.json))?|access_tokens\.db|secrets?\.(env|json|ini|toml|ya?ml)"
    r"|.*\.tfstate(\.backup|\.\d+\.backup)?|.*\.tfvars(\.json)?|kaggle\.json|rclone\.conf|hub_token|hf_token|stored_tokens",
    re.IGNORECASE,
)
_FOLDERS = re.compile(
    r"(?:.*/)?(\.git|\.aws|\.kube|\.ssh|\.gnupg|\.azure|\.oci|\.gcloud|\.config/(gcloud|gh|hub|rclone)|\.docker|\.password-store"
    r"|\.terraform\.d)",
    re.IGNORECASE,
)
_PATHS = re.compile(r"(?:.*/)?(\.?huggingface/token|containers/auth\.json)", re.IGNORECASE)
_CERTIFICATES_ONLY = re.compile(r"-----BEGIN [A-Z ]*(CERTIFICATE|PUBLIC KEY|CRL|DH PARAMETERS)-----")
_CONTENTS = (
    re.compile(r"^-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----", re.MULTILINE),
    re.compile(r'"private_key"\s*:\s*"-----BEGIN'),
    re.compile(r'\A\s*\{[^{}]{0,200}"auths"\s*:\s*\{.{0,400}?"(auth|identitytoken|password)"\s*:\s*"[^"]', re.DOTALL),
)
_KUBECONFIG = (re.compile(r"^current-context:", re.MULTILINE), re.compile(r"^users:", re.MULTILINE))
"""Keys of a file for kubectl, which has both."""
_MAX_TOKEN_FILE_BYTES = 4096
"""Size of a file that may hold nothing but a token."""


def find_secret_folder(path: str) -> str | None:
    """Return the folder of secrets that contains the file at `path` (relative, with `/`); None if there is no such folder."""
    for parent in reversed(PurePosixPath(path).parents):
        if _FOLDERS.fullmatch(str(parent)):
            return str(parent)
    return None


def is_secret_file(path: str, content: str) -> bool:
    """Return whether a file probably holds a secret; `content` is its beginning, or empty if it is not known."""
    name = PurePosixPath(path).name
    if name.endswith(".pub"):
        return False
    if any(pattern.search(content) for pattern in _CONTENTS) or all(key.search(content) for key in _KUBECONFIG):
        return True
    if len(content) < _MAX_TOKEN_FILE_BYTES and (token := content.strip()) and find_token(token) == token:
        return True
    if _PATHS.fullmatch(path):
        return True
    return bool(_NAMES.fullmatch(name)) and not (name.endswith(".pem") and _CERTIFICATES_ONLY.search(content))
