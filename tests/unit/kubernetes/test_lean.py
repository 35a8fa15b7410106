"""Which modules a command that asks a cluster pays for; each in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_generated_models_are_not_imported():
    run("""
import sys
from kfjob.backends.kubernetes.lean import parts
assert parts().Configuration().host
assert "kubernetes.client.models.v1_pod" not in sys.modules
""")


def test_who_imports_the_package_later_gets_the_whole_of_it():
    run("""
from kfjob.backends.kubernetes.lean import parts
ours = parts()
import kubernetes
from kubernetes.client import ApiClient, CoreV1Api, V1Pod
from kubernetes.config import load_kube_config
assert CoreV1Api(ApiClient()) and V1Pod().to_dict()
assert parts() is ours
""")


def test_a_package_that_is_imported_already_is_used():
    run("""
import kubernetes.client
from kfjob.backends.kubernetes.lean import parts
assert parts().Configuration is kubernetes.client.Configuration
""")


def test_an_api_client_for_a_token_that_must_be_renewed():
    run("""
from kfjob.backends.kubernetes.lean import parts
made = parts().config.kube_config.ApiClient(configuration=parts().Configuration())
assert type(made).__name__ == "ApiClient" and made.call_api
""")


def test_what_renews_an_oidc_token_is_imported_when_it_is_used():
    run("""
import sys
from kfjob.backends.kubernetes.lean import parts
kube_config = parts().config.kube_config
assert not {"requests", "oauthlib", "requests_oauthlib"} & set(sys.modules)
session = kube_config.OAuth2Session(client_id="a", token={"access_token": "b"})
assert type(session).__name__ == "OAuth2Session" and session.client_id == "a"
assert kube_config.oauthlib.oauth2.rfc6749.errors.InvalidClientIdError.__mro__
""")
