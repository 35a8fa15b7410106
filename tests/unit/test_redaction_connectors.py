"""Redaction hides secrets in markup, pairs, tables, settings, sentences and other languages, and similar texts stay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfjob.redaction import REDACTED, Redactor, is_secret_name

SECRETS = """
<password>letmein</password>
<db:Password type="x">letmein5</db:Password>
<server><username>me</username><password>letmein</password></server>
<password><value>letmein</value></password>
<password>{AES=letmein-55}</password>
<password><![CDATA[letmein]]></password>
<password>letmein
&lt;password&gt;letmein&lt;/password&gt;
{&quot;password&quot;: &quot;letmein&quot;}
<add key="ApiKey" value="letmein-55"/>
<add value="letmein-55" key="ApiKey"/>
<user name="me" password="letmein"/>
<property name="password" value="letmein"/>
<property name="password">letmein</property>
<entry key="db.password">letmein</entry>
<string name="api_key">letmein</string>
<input type="password" value="letmein">
<key>password</key><string>letmein</string>
<property><name>fs.s3a.secret.key</name><value>letmein</value></property>
('password', 'letmein')
('password', 12345678)
[["token","letmein-55"]]
[("password", "letmein"), ("lr", 1)]
dict([('api_key', 'letmein')])
["password","letmein"]
[\\"password\\", \\"letmein\\"]
[(b'x-api-key', b'letmein')]
('Authorization', 'Token letmein')
os.environ.setdefault("DB_PASSWORD", "letmein")
{"password", "letmein"}
| password | letmein |
| API_KEY  | letmein-55 |
| API_KEY  | letmein-55 | string | of the hub |
\u2502 password \u2502 letmein \u2502
| `HF_TOKEN` | `letmein` |
PASSWORD    letmein-55
  HF_TOKEN        LetMeIn5512345
[rank0]: DB_PASSWORD\tletmein-55
ENV DB_PASSWORD letmein
ENV DB_PASSWORD letmein and more
ARG API_TOKEN letmein
RUN true; setenv DB_PASSWORD letmein
set -x DB_PASSWORD letmein
set -gx DB_PASSWORD 'letmein'
export -x DB_PASSWORD=letmein
git config --global user.password letmein
docker login -p letmein
docker login -pletmein host
["docker", "login", "-pletmein", "host"]
podman login -u me -p=letmein quay.io
Incorrect API key provided: letmein-55. You can find your API key at https://x
Incorrect API key provided: letmein*****55
Invalid token: letmein-55
Invalid API key: letmein55
password is letmein
the password is 'letmein'
password was set to letmein-55 by bob
your token is letmein-55
The password for user bob is letmein
password for "bob": letmein-55
using token letmein-55
token "letmein-55" is invalid
with password 'letmein'
authentication failed with token letmein-55
CREATE USER me IDENTIFIED BY 'letmein'
ALTER USER me WITH PASSWORD 'letmein'
passwort: letmein
Kennwort=letmein
Datenbankpasswort: letmein
DB_PASSWORT=letmein
PASSWORT_DB=letmein-55
mot_de_passe=letmein
Mot de passe : letmein
contrase\u00f1a=letmein
contrasen\u0303a: letmein
contrasena=letmein
"contrase\\u00f1a": "letmein"
senha=letmein
dbSenha=letmein-55
\u043f\u0430\u0440\u043e\u043b\u044c=letmein
\u041f\u0430\u0440\u043e\u043b\u044c: letmein
\u5bc6\u7801=letmein
\u8bf7\u8f93\u5165\u5bc6\u7801\uff1aletmein
"\\u5bc6\\u7801": "letmein"
\u5bc6\u78bc\uff1aletmein
\u30d1\u30b9\u30ef\u30fc\u30c9=letmein
\ube44\ubc00\ubc88\ud638: letmein
wachtwoord=letmein
has\u0142o=letmein
l\u00f6senord: letmein
cl\u00e9 d'API : letmein
API-Schl\u00fcssel: letmein
\u5bc6\u94a5: letmein-55
\u4ee4\u724c: letmein-55
<passwort>letmein</passwort>
('\u5bc6\u7801', 'letmein')
| senha | letmein |
"""


@pytest.mark.parametrize("line", SECRETS.strip().splitlines(), ids=ascii)
@pytest.mark.parametrize("place", ["{}", "{}\nstep 5 loss: 2.3", "first\n{}\n"], ids=ascii)
def test_secret_behind_any_connector_is_redacted(line, place):
    redacted = Redactor().text(place.format(line))
    assert not any(part in redacted for part in ("letm", "etmein", "LetMe", "12345678"))
    assert REDACTED in redacted
    assert "loss: 2.3" in redacted or "loss" not in place
    assert Redactor().text(redacted) == redacted


ORDINARY = """
tokens: 12345 | token 5 of 10 | token 50256 of 50257 processed
key: value
max_new_tokens=512
the archive is password-protected and needs a password
pad_token='<pad>'
Added token '<pad>' at 32000, token '<|endoftext|>' is special
Unknown token '\u0120hello'
| step | tokens | loss |
| 10   | 12345  | 2.31 |
| tokens | 12345 |
| token | count |
| password | string | yes | Password of the registry |
| `password` | string | |
| HF_TOKEN | required |
| password | username |
| token | description |
| epoch 1 | step 10 | token 5 | loss 2.3 |
\u2502 tokens \u2502 12345 \u2502
hf-token    Opaque   1      5d12h
db-password   kubernetes.io/basic-auth   2   5d
hf-token    5d12h
api-key     12h
tokens    12345    loss    2.31
total_tokens      1234567
("key", "value") ("token", "loss") ["token", "count"]
['password', 'username'] ("password", "username", "host")
invalid choice: 'x' (choose from 'password', 'token')
[["tokens", 12345], ["loss", 2.3], ["key", "model.layers.0"]]
WeightRenaming("attention.self.key", "attention.k_proj")
["env.DB_PASSWORD", "env.NOTE"]
getattr(self, "password", None) os.environ.get("HF_TOKEN", "")
Text("hub-auth", "You are trying to access a gated repo.")
password is required
password is incorrect
password is too short
password for user "bob" is required
password for bob is incorrect.
token is invalid
token was revoked
your token has expired
Token is valid (permission: fineGrained).
The token `train` has been saved to /root/.cache/huggingface/stored_tokens
no API key provided: set WANDB_API_KEY
using token from environment
using password authentication
with token type ids
first token is 50256
pad token is '<pad>'
pad token is set to eos token
secret "hf-token-2" not found
couldn't find key token2a in Secret ns/hf2
Key 'loss1a' not found
webhook "validator1.pytorchjob" denied the request
("webhook", "answers")
pass `id2label/label2id` in kwargs
ENV HF_TOKEN is not set
ENV HF_TOKEN missing
ENV HF_TOKEN $HF_TOKEN
ENV NCCL_DEBUG INFO
set password manually
git config user.name bob
<s> hello </s> <pad><pad><|im_start|>user<|im_end|>
<key>loss</key><value>2.31</value>
<property><name>loss.key</name><value>a</value></property>
<token>5</token><tokens>12345</tokens><password></password>
<name>password</name>
mysql -u <user> -p<password> -h host
usage: x [--token <token>] [--password <password>] host
<label for="password">Password</label><input type="password" name="password" placeholder="Password">
login commands (`docker login -p`, `curl -u`, netrc)
identified by the scheduler
Passwort: falsch
Passwort ist falsch
\u041f\u0430\u0440\u043e\u043b\u044c: \u043d\u0435\u0432\u0435\u0440\u043d\u044b\u0439
\u5bc6\u7801\u9519\u8bef
\u5bc6\u7801: \u9519\u8bef
\u5bc6\u7801\u957f\u5ea6=8
Verschl\u00fcsselung: aes256gcm1
Schl\u00fcssel: model.layers.0
jeton: 5
vehicle: 5a6b7c8d particle=abc12345
"""


@pytest.mark.parametrize("line", ORDINARY.strip().splitlines(), ids=ascii)
def test_similar_text_stays(line):
    assert Redactor().text(line) == line


def test_long_value_of_a_setting_is_redacted_to_its_end():
    for line in ("ENV DB_PASSWORD " + "letmein-5" * 1000, "ENV DB_PASSWORD " + "letmein 5 " * 1000):
        assert "letmein" not in Redactor().text(f"{line}\nstep 5")
        assert Redactor().text(f"{line}\nstep 5").endswith("\nstep 5")


NAMES = st.sampled_from(["password", "DB_PASSWORD", "passwd", "contrase\u00f1a", "\u5bc6\u7801", "db.passwort"])
VALUES = st.text(alphabet=st.sampled_from([*"aZ9.:/@!#$%^*+?~-_="]), max_size=8).map(lambda text: f"p4ss{text}w0rd")
FORMS = st.sampled_from(
    ["<{n}>{v}</{n}>", '<x key="{n}"\tvalue="{v}" />', "('{n}', '{v}')", '[["{n}",\n  "{v}"]]', "| {n} | {v} |", "ENV {n} {v}"]
)


@given(NAMES, VALUES, FORMS, st.sampled_from(["{}", "step 5 {}", "[rank0]: {}", "\u2502 {}"]))
def test_whole_value_is_redacted(name, value, form, place):
    if not name.isascii() and form.startswith("<{"):
        name = "password"  # the names of elements are ASCII
    redacted = Redactor().text(place.format(form.format(n=name, v=value)))
    assert "p4ss" not in redacted
    assert "w0rd" not in redacted
    assert name in redacted


@pytest.mark.parametrize(
    "value",
    [
        {"a": [["password", "letmein"], ["lr", 1]]},
        {"headers": [["Authorization", "Token letmein"]]},
        {"tags": [{"Key": "db_password", "Value": "letmein"}]},
        {"contrase\u00f1a": "letmein"},
        {"\u5bc6\u7801": ["letmein"]},
    ],
    ids=ascii,
)
def test_pairs_and_names_of_other_languages_are_redacted_in_json(value):
    text = json.dumps(Redactor().value(value), ensure_ascii=False)
    assert "letmein" not in text
    assert REDACTED in text


@pytest.mark.parametrize(
    "value",
    [
        ["password", "username"],
        {"tolerations": [{"key": "nvidia.com/gpu", "value": "present"}]},
        [["token", "loss"]],
        ["key", "a"],
    ],
    ids=ascii,
)
def test_lists_of_names_stay_in_json(value):
    assert Redactor().value(value) == value


@pytest.mark.parametrize("name", ["DB_PASSWORT", "mot_de_passe", "contrase\u00f1a", "senha", "\u5bc6\u7801", "clave-api"])
def test_name_of_another_language_is_recognised(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "text", ["password | email1", "user | password | email1 | email_2", "| name | password | host1 | port1 |"]
)
def test_numbered_columns_of_a_header_stay(text: str):
    assert Redactor().text(text) == text


@pytest.mark.parametrize("text", ["| password | email1 |", "user | password | hunter22", "password | email12"])
def test_value_of_a_table_is_redacted(text: str):
    assert REDACTED in Redactor().text(text)
