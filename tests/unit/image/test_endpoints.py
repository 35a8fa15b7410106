from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.base.errors import UsageError
from kfjob.image.registry.endpoints import Endpoint, find_endpoint, list_config_folders

HOSTS = """
server = "https://upstream.example"
[host."http://127.0.0.1:5000"]
capabilities = ["pull", "resolve"]
[host."https://mirror.example/v2"]
capabilities = ["push"]
ca = "ca.pem"
client = [["me.pem", "me.key"]]
[host."https://other.example"]
skip_verify = true
ca = ["a.pem", "/b.pem"]
"""


def folder(tmp_path: Path, host: str, **files: str) -> Path:
    own = tmp_path / host
    own.mkdir(parents=True)
    for name, text in files.items():
        (own / name.replace("_", ".")).write_text(text)
    return own


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "localhost:5000", "localhost", "[::1]:5000", "127.3.2.1:80"])
def test_loopback_has_no_tls(host):
    assert find_endpoint(host, "pull", folders=()) == Endpoint(url=f"http://{host}")


@pytest.mark.parametrize("host", ["quay.io", "registry.example:5000", "10.0.0.1:5000", "localhost.example"])
def test_other_hosts_have_tls(host):
    assert find_endpoint(host, "push", folders=()) == Endpoint(url=f"https://{host}")


def test_containerd_configuration_is_read(tmp_path):
    own = folder(tmp_path, "registry.example", hosts_toml=HOSTS)
    assert find_endpoint("registry.example", "pull", folders=[tmp_path]) == Endpoint(
        url="http://127.0.0.1:5000", is_mirror=True
    )
    push = find_endpoint("registry.example", "push", folders=[tmp_path])
    assert push.url == "https://mirror.example"
    assert push.is_mirror
    assert push.authorities == (own / "ca.pem",)
    assert push.certificate == (own / "me.pem", own / "me.key")
    (own / "hosts.toml").write_text(HOSTS.partition("[host")[0])
    upstream = Endpoint(url="https://upstream.example", is_mirror=True)
    assert find_endpoint("registry.example", "push", folders=[tmp_path]) == upstream
    (own / "hosts.toml").write_text(HOSTS.partition('[host."https://other')[2].replace('.example"]', '[host."https://o"]', 1))
    endpoint = find_endpoint("registry.example", "pull", folders=[tmp_path])
    assert not endpoint.verify
    assert endpoint.authorities == (own / "a.pem", Path("/b.pem"))


@pytest.mark.parametrize("url", ["registry.example", "https://registry.example", "https://REGISTRY.example:443/v2/"])
def test_own_host_is_no_mirror(tmp_path, url):
    folder(tmp_path, "registry.example", hosts_toml=f'server = "https://m.example"\n[host."{url}"]')
    assert not find_endpoint("registry.example", "pull", folders=[tmp_path]).is_mirror


@pytest.mark.parametrize(
    "url",
    ["https://registry.example:444", "https://sub.registry.example", "https://registry.example@m.example", "https://m.example"],
)
def test_other_host_is_a_mirror(tmp_path, url):
    folder(tmp_path, "registry.example", hosts_toml=f'[host."{url}"]')
    assert find_endpoint("registry.example", "pull", folders=[tmp_path]).is_mirror


def test_docker_configuration_is_read(tmp_path):
    own = folder(tmp_path, "127.0.0.1:5000", ca_crt="x", client_cert="y", client_key="z")
    endpoint = find_endpoint("127.0.0.1:5000", "pull", folders=[tmp_path / "absent", tmp_path])
    assert endpoint.url == "https://127.0.0.1:5000"
    assert endpoint.authorities == (own / "ca.crt",)
    assert endpoint.certificate == (own / "client.cert", own / "client.key")


def test_folder_name_without_a_colon_is_found(tmp_path):
    folder(tmp_path, "registry.example_5000_", hosts_toml='server = "http://a"')
    assert find_endpoint("registry.example:5000", "pull", folders=[tmp_path]).url == "http://a"


@pytest.mark.parametrize("text", ["server = ", "host = 5", '[host]\n"http://a" = 5'])
def test_unreadable_file_is_named(tmp_path, text):
    own = folder(tmp_path, "a.example", hosts_toml=text)
    with pytest.raises(UsageError) as caught:
        find_endpoint("a.example", "pull", folders=[tmp_path])
    assert caught.value.location == str(own / "hosts.toml")


def test_configuration_folders():
    assert Path("/etc/containerd/certs.d") in list_config_folders({})
    assert list_config_folders({"KFJOB_REGISTRY_CERTS": "/a:/b"}) == (Path("/a"), Path("/b"))
