"""Redaction hides secrets in dumps of arguments, in help texts, in code, in URLs and in base64."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode

import pytest

from kfjob.redaction import REDACTED, Redactor

HEX = "0123456789abcdef" * 2 + "01234567"
VALUE = "Zk8vQ2m" + "Lx91b"
LINES = """
  hub_token ....................................... {S}
wandb_key .... {S}
  api_key ... {S}
api_key ................. letmein
client_secret ........ {S}
[rank0]:   hub_token ................ {S}
[INFO] [config.py:1000:print]   hub_token .................... {S}
hub_token.............: {S}
password (default: {S})
--password PASSWORD (default: {S})
--password PASSWORD (default: letmein)
--password letmein (default: {S})
--password letmein and help (default: {S})
--hf-token HF_TOKEN  [default: {S}]
  --hf-token HF_TOKEN   the token of the hub (default: '{S}')
  --api-key API_KEY     the key (default: "{S}")
DB_PASSWORD (from env): {S}
password (str): {S}
db_password [required] = {S}
db_password [str, required] = letmein
passwords[0]: {S}
password["x"] = {S}
password['x'] = '{S}'
passwords["x"]: "{S}"
wandb login {H}
wandb login --relogin --host=https://wandb.example {H}
wandb: Appending key for api.wandb.ai to your netrc file: {H}
hub_token          | {S}
 password | {S}
API key {S} is invalid
API key letmein-55 is invalid
got 401 for token {S}
got 401 for token letmein-55
new token ({S})
HTTPBasicAuth('bob', '{S}')
requests.get(u, auth=HTTPBasicAuth("bob", "letmein"))
aiohttp.BasicAuth('bob', '{S}')
aiohttp.BasicAuth(login='bob', password='{S}')
https://h/x?key={H}
https://h/x?code={H}
https://h/x?a=1&code={S}
bob:{S}@host:5432
connect to bob:{S}@db.example:5432/x failed
MYPASS={S}
MYPASS=letmein
DBPWD={S}
psk={S}
passwrd={S}
passwrd: letmein
MYSVC_KEY={H}
MYSVC_TOKEN={S}
"""


@pytest.mark.parametrize("line", LINES.strip("\n").splitlines())
@pytest.mark.parametrize("place", ["{}", "first\n{}\nstep 5 loss: 2.3"], ids=ascii)
def test_secret_in_a_dump_is_redacted(line, place):
    redacted = Redactor().text(place.format(line.replace("{S}", VALUE).replace("{H}", HEX)))
    assert not any(part in redacted for part in (VALUE[:6], VALUE[-6:], HEX[:10], "letmein"))
    assert REDACTED in redacted
    assert "loss: 2.3" in redacted or place == "{}"
    assert Redactor().text(redacted) == redacted


def test_basic_credentials_without_a_header_are_redacted():
    credentials = b64encode(b"bob:hunter2x").decode()
    assert Redactor().text(f"sent Basic {credentials} to h") == f"sent Basic {REDACTED} to h"


@pytest.mark.parametrize("prefix", ["", "a", "bob:", "12345"])
@pytest.mark.parametrize("suffix", ["", "\n", "/more"])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_known_secret_in_base64_is_redacted(prefix, suffix, encode):
    secret = "tomato~soup?55>"  # noqa: S105 - nobody's
    encoded = encode(f"{prefix}{secret}{suffix}".encode()).decode()
    redacted = Redactor([secret]).text(f"data: {encoded} end")
    assert not any(encoded[start : start + 6] in redacted for start in range(len(prefix) + 4, len(encoded) - len(suffix) - 10))
    assert redacted.endswith(" end")


def test_short_known_secret_hides_no_other_words():
    assert Redactor(["abcd"]).text("YWJjZA== stays") == "YWJjZA== stays"
