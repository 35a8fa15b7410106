"""What SECURITY.md promises: secrets are found by names, notations, shapes, and as known values."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.redaction import REDACTED, Redactor, collect_secrets, cut_text, find_secret, is_secret_name
from kfjob.redaction.names import is_harmless
from kfjob.redaction.token_shapes import TOKEN_SHAPES

NAMES_OF_SECRETS = """
DB_PASS DB_PASSWORD PASSWORD PGPASSWORD MYSQL_PWD HF_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY KEY SECRET CLIENT_SECRET WEBHOOK
SLACK_WEBHOOK_URL SENTRY_DSN GIT_CREDENTIALS api-key apiKey accessToken auth_token SSH_PRIVATE_KEY TLS_KEY_PEM DB_PASSWORD_OLD
API_KEY_2 OPENAI_KEY privateKey wandb.api_key --hub-token _password NPM_AUTH PASSPHRASE signing-key token FOO_KEY MYAPP_TOKEN
"""


@pytest.mark.parametrize("name", NAMES_OF_SECRETS.split())
def test_secret_name_is_recognised(name: str):
    assert is_secret_name(name)
    assert Redactor().value({"env": {name: "tomato"}}) == {"env": {name: REDACTED}}
    assert find_secret("tomato", name) == "a secret (by the variable's name)"


SECRET = "Zq81xxPlum7W"  # noqa: S105 - nobody's
NOTATIONS = """
export DB_PASSWORD={}
HF_TOKEN={} python train.py
DB_PASSWORD='{} two words'
DB_PASSWORD="{}, two"; next
b'DB_PASSWORD': b'{}'
step 5 password: {} failed
connect with password = {}
Config(hub_token='{}', lr=0.1)
{{"api_key": "{}", "loss": 2.3}}
{{'api_key': '{}', 'loss': 2.3}}
{{\\"api_key\\": \\"{}\\"}}
"client_secret" : "{} {}"
os.environ["DB_PASSWORD"] = "{}"
password: 'it\\'s {}'
Server=h;Password={};Timeout=5
GET /x?a=1&access_token={}&b=2
AccountKey={}==
kubectl create secret generic db --from-literal=password={}
train.py ++logger.api_key={}
train.py --token {} --steps 5
train.py --token={} --steps 5
train.py --db-password "{} two"
['train.py', '--wandb-key', '{} two']
token={}AbcDefGhi
Authorization: Bearer {}
authorization: Basic {}=
Authorization: Digest username="me", response="{}"
{{'Authorization': 'Token {} two', 'Accept': '*/*'}}
curl -H "Authorization: Token {} two" https://x
Proxy-Authorization: Basic {}
{{"headers": {{"authorization": ["Bearer {}"], "cookie": ["sid={}"]}}}}
{{"passwords": ["first", "{}"], "step": 5}}
Cookie: a=b; session={}; c=d
Set-Cookie: sid={}; Path=/
postgres://me:{}@db/x
redis://:{}@cache:6379
https://oauth2:{}@host/a@b
cannot reach 'amqp://me:{}:/?#@mq': refused
"""


@pytest.mark.parametrize("line", NOTATIONS.strip().splitlines())
@pytest.mark.parametrize("place", ["{}", "[rank0]: {}", "first\n{}\nlast", "\x1b[31m{}\x1b[0m"], ids=ascii)
def test_secret_is_redacted_in_every_notation(line: str, place: str):
    redacted = Redactor().text(place.format(line.replace("{}", SECRET).replace("{{", "{").replace("}}", "}")))
    assert SECRET not in redacted
    assert REDACTED in redacted
    assert Redactor().text(redacted) == redacted


PIECES = st.text(alphabet=[*"aZ9.,;:&/@!#$%^*()+<>?|~-_[]{}"], max_size=8)
PLACES = st.sampled_from(["{}", "step 5 {} x", "({}", "│ {} │", '{{"message": "{}"}}'])


@given(PIECES, PLACES, st.sampled_from(["DB_PASSWORD={}", "api_key: {}", "--hub-token {}", "'apiKey': '{}'", "x://me:{}@db"]))
def test_whole_value_is_redacted(piece: str, place: str, notation: str):
    redacted = Redactor().text(place.format(notation.format(f"p4ss{piece}w0rd")))
    assert "p4ss" not in redacted
    assert "w0rd" not in redacted


def test_colours_stay_in_lines_without_a_secret():
    text = "\x1b[31mstep\x1b[0m 5\n\x1b[31mHF_TOKEN\x1b[0m=tomato10\x1b[0m ok\n"
    assert Redactor().text(text) == f"\x1b[31mstep\x1b[0m 5\nHF_TOKEN={REDACTED} ok\n"


EXAMPLES = (
    *("hf_" + "a1B2" * 9, "hf_oauth_" + "a1B2" * 9, "api_org_" + "a1B2" * 9, "wandb_v1_" + "a1B2" * 9),
    *("AKIA" + "IOSFODNN7EXAMPLE", "ASIA" + "IOSFODNN7EXAMPLE", "AIza" + "Sy0-_" * 7, "ya29." + "a1B2-_" * 8),
    *("GOCSPX-" + "a1B2-_c" * 4, "ghp_" + "x9" * 18, "github_pat_" + "11ABCDEFG0_" + "a1B2" * 15, "glpat-" + "a1B2_" * 4),
    *("sk-proj-" + "a1B2c3D4e5" * 3, "nvapi-" + "a1B2-_" * 8, "gsk_" + "a1B2" * 13, "r8_" + "a1B2" * 10),
    *("sk_" + "live_" + "a1B2" * 6, "xoxb-" + "1234567890-abcdef", "xapp-" + "1-A0123456789-0123456789-" + "ab12" * 8),
    *("hooks.slack.com/" + "services/T000/B000/XXXX", "discord.com/" + "api/webhooks/123456789012345678/a1B2-_c3"),
    *("pypi-" + "AgEIcHlwaS5vcmc" + "a1B2-_" * 9, "npm_" + "a1B2" * 9, "dckr_pat_" + "a1B2-_" * 5),
    *("SG." + "a1B2c3D4e5F" * 2 + "." + "a1B2" * 11, "hvs." + "a1B2" * 7, "dop_v1_" + "a1b2" * 16, "dapi" + "a1b2" * 8),
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "-----BEGIN RSA " + "PRIVATE KEY-----MIIEpAIBAAKCAQEA-----END RSA PRIVATE KEY-----",
)
"""A token of each shape, which nobody issued."""


@pytest.mark.parametrize(("shape", "token"), [*zip(TOKEN_SHAPES, EXAMPLES, strict=True)], ids=lambda item: ascii(item)[:24])
@pytest.mark.parametrize("text", ["{}", "using {} now", "token-{}.", "x\n{}\ny", "('{}')", "https://x/{}?a"])
def test_token_is_redacted_by_its_shape(shape, token, text):
    assert token not in Redactor().text(text.format(token))
    assert find_secret(text.format(token)) == shape.kind


KEY_BODY = ("MIIEpAIBAAKCAQEA7v3Zy8xQm2Lr5tKcW9dHnJfGbPsUoYeTaRiXwVzNkMlCqDhB", "u1s9k2Lm+Qz/7Yx3Wv==")
KEY = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *KEY_BODY, "-----END RSA PRIVATE KEY-----"])
LOCKED_KEY = KEY.replace("KEY-----\nMII", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A1B2C3D4E5F\n\nMII")


@pytest.mark.parametrize("key", [KEY, LOCKED_KEY, KEY.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")])
def test_private_key_is_redacted_in_one_text_and_line_by_line(key: str):
    before, after = "loading the key", "step 5 loss: 2.3"
    assert Redactor().text(f"{before}\n{key}\n{after}") == f"{before}\n{REDACTED}\n{after}"
    redacted = [before, *[REDACTED] * len(key.splitlines()), after]
    assert Redactor().value([before, *key.splitlines(), after]) == redacted
    lines = Redactor().lines()
    prefixed = [lines.line(f"[rank0]: {line}") for line in key.splitlines()]
    assert not any(part in str(prefixed) for part in (*KEY_BODY, "0A1B2C"))


SPEC = {
    "name": "llama",
    "command": ["python", "train.py", "--token", "abc1", "--tokenizer", "gpt2", "--api-key=xyz7 8", "--steps", "5"],
    "env": {
        "DB_PASS": "hunter2",
        "PIN_PASSWORD": 12345678,
        "HF_TOKEN": {"secret": "hf", "key": "token"},
        "MODEL": "llama",
        "API_KEY": "$(FROM_ELSEWHERE)",
        "URL": "postgres://me:s3cr3t@db/x",
        "DEBUG_TOKEN": "true",
    },
    "train": {"tokenizer": "gpt2", "hub_token": "hf/token", "wandb_key": "wandb/key", "max_tokens": 5},
    "pull_secrets": ["registry"],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "pod": {
        "init_containers": [{"name": "init", "env": [{"name": "AUTH_TOKEN", "value": "zzz"}, {"name": "A", "value": "b"}]}]
    },
}


def test_spec_is_redacted_by_field():
    redacted, env = Redactor().value(SPEC), SPEC["env"]
    assert isinstance(env, dict)
    assert redacted["command"] == [
        *("python", "train.py", "--token", REDACTED, "--tokenizer", "gpt2", f"--api-key={REDACTED}", "--steps", "5")
    ]
    hidden = {"DB_PASS": REDACTED, "PIN_PASSWORD": REDACTED, "URL": f"postgres://me:{REDACTED}@db/x"}
    assert redacted["env"] == dict(env) | hidden
    assert redacted["pod"]["init_containers"][0]["env"] == [
        {"name": "AUTH_TOKEN", "value": REDACTED},
        {"name": "A", "value": "b"},
    ]
    unchanged = ("name", "train", "pull_secrets", "tolerations")
    assert {key: redacted[key] for key in unchanged} == {key: SPEC[key] for key in unchanged}


def test_data_of_a_kubernetes_secret_is_redacted():
    manifest = {"kind": "Secret", "metadata": {"name": "a"}, "data": {"x": "YQ=="}, "stringData": {"y": "b"}}
    assert Redactor().value(manifest) == manifest | {"data": {"x": REDACTED}, "stringData": {"y": REDACTED}}


@pytest.mark.parametrize(
    "value",
    [
        {"password": ["p4ss", "w0rd"]},
        {"credentials": {"user": "p4ss", "list": [{"x": "w0rd"}]}},
        {"password": {"key": "p4ss"}},
        {"password": 1234567},
        {"hf_" + "a1B2" * 9: 1},
    ],
    ids=str,
)
def test_every_text_under_the_name_of_a_secret_is_redacted(value):
    text = str(Redactor().value(value))
    assert not any(part in text for part in ("p4ss", "w0rd", "1234567", "a1B2"))
    assert REDACTED in text


def test_known_secret_is_redacted_wherever_it_stands():
    secrets = collect_secrets(SPEC)
    assert secrets == {"hunter2", "12345678", "s3cr3t", "zzz", "abc1", "xyz7 8"}
    redactor = Redactor(secrets)
    assert redactor.text("connect failed: hunter2, 12345678x, s3cr3t") == f"connect failed: {REDACTED}, {REDACTED}x, {REDACTED}"
    assert redactor.text("zzz hunter22 abc12") == "zzz hunter22 abc12"  # too short, or a part of another word
    assert redactor.value({"message": ["bad: hunter2"]}) == {"message": [f"bad: {REDACTED}"]}


def test_known_secret_that_is_a_word_removes_no_field():
    fields = {"phase": 1, "pods": 2, "master": [{"phase": 3}], "step_phase": 4}
    assert Redactor(["phase", "pods", "master"]).value(fields) == fields


@pytest.mark.parametrize(
    "encode", [str, json.dumps, lambda text: base64.b64encode(text.encode()).decode(), lambda _: "a%2Bb%2Fc%20d%22e"]
)
def test_encoded_known_secret_is_redacted(encode: Callable[[str], str]):
    secret = 'a+b/c d"e'  # noqa: S105 - nobody's
    assert Redactor([secret]).text(f"x {encode(secret)} y").replace('"', "").strip("=") in (
        f"x {REDACTED} y",
        f"x {REDACTED}== y",
        f"x {REDACTED}= y",
    )


def test_lines_of_a_known_secret_are_redacted():
    redactor = Redactor(["first line of a secret\nsecond line of a secret"])
    assert redactor.text("second line of a secret") == REDACTED


PASSWORDS = ["$uper5ecret!x9", "$ecret5word!", "$P4ss", "<x>y9!pass", "{{a}}b9!pass", "id=a,b!9", "$(X)y9!", "${X}y9!"]


@pytest.mark.parametrize("password", PASSWORDS)
def test_password_that_begins_as_a_variable_is_redacted(password: str):
    for value in ({"name": "DB_PASSWORD", "value": password}, {"env": {"DB_PASSWORD": password}}, ["--db-password", password]):
        assert password not in json.dumps(Redactor().value(value))
    assert password not in Redactor().text(f"DB_PASSWORD={password}")
    assert not is_harmless(password)


@pytest.mark.parametrize("place", range(150, 260, 7))
@pytest.mark.parametrize("notation", ["password={}", "https://u:{}@h/", "hf_{}", "password='{}'", '"api_key": "{}"'])
def test_secret_at_a_cut_is_not_shown_in_part(place: int, notation: str):
    assert "Zq81" not in cut_text("word " * (place // 5) + notation.format(SECRET * 1000), 200)


UNITS = (
    *(
        "password=",
        "password='",
        'password="\\',
        "--token ",
        "a_token",
        "x://a:b",
        "x://a:b@",
        "Authorization: ",
        "password: {",
    ),
    *("-----BEGIN PRIVATE KEY-----", "eyJhbGciOiJI.", "eyJhbGciOiJI-", "sk-", "key=[", "$(", "${A:?", "<", "A-", "\x1b[", "😀"),
)


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_hostile_text_needs_linear_time(unit: str):
    text = unit * (100_000 // len(unit))
    start = time.process_time()
    Redactor(["tomato-soup"]).text(text)
    assert time.process_time() - start < 5  # a quadratic search needs minutes
