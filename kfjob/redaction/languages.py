"""Read the names of secrets in other languages as the English ones, so that the rules for names are written once. Pure."""

from __future__ import annotations

import unicodedata
from types import MappingProxyType
from typing import NamedTuple

from ahocorasick_rs import AhoCorasick, MatchKind

_ANY_PREFIX = "passwort kennwort contraseña senha wachtwoord lösenord пароль motdepasse"
"""Words that mean a password also at the end of a longer word: `Datenbankpasswort`."""
_WORDS = MappingProxyType(
    {
        "password": "passwort kennwort losungswort contraseña contrasenha senha wachtwoord lösenord salasana adgangskode hasło "
        "heslo jelszó şifre mot_de_passe motdepasse mdp palabra_clave clave_de_acceso palavra_passe parola_d'ordine "
        "пароль пароля паролем 密码 密碼 口令 パスワード 暗証番号 비밀번호 암호 סיסמה "
        "رمز_عبور كلمة_المرور mật_khẩu kata_sandi पासवर्ड รหัสผ่าน",
        "api_key": "api_schlüssel clé_d'api clé_api clave_de_api clave_de_la_api clave_api chave_de_api chave_da_api chave_api "
        "chiave_api ключ_api api_ключ api密钥 api密鑰 apiキー api키",
        "private_key": "privater_schlüssel clé_privée clé_secrète clave_privada clave_secreta chave_privada chave_secreta "
        "chiave_privata секретный_ключ закрытый_ключ 密钥 密鑰 私钥 私鑰 秘密鍵 비밀키 개인키",
        "access_token": "zugriffstoken zugangstoken jeton_d'accès token_de_acceso token_de_acesso токен_доступа "
        "访问令牌 訪問令牌 アクセストークン 액세스토큰",
        "token": "jeton токен 令牌 トークン 토큰",
        "key": "schlüssel clé clave chave chiave ключ",
        "secret": "geheimnis secreto segredo секрет 机密 機密 秘密 비밀",
        "credentials": "zugangsdaten anmeldedaten identifiants_de_connexion credenciales credenciais credenziali "
        "凭证 凭据 憑證",
    }
)
"""Words and phrases for each English name; `_` stands for any separator."""


def _strip_accents(text: str) -> str:
    return "".join(part for part in unicodedata.normalize("NFKD", text) if unicodedata.category(part) not in ("Mn", "Me"))


def _list_spellings(word: str) -> set[str]:
    """Return a word as people write it, in lower case: with composed, separate and no accents, and each separator."""
    texts = {word, unicodedata.normalize("NFD", word), _strip_accents(word)}
    texts |= {text.replace(mark, other) for text in list(texts) for mark in "'" for other in ("\u2019", "_") if mark in text}
    return {text.replace("_", separator) for text in texts for separator in " _-."}


_ENGLISH = {
    spelling: english
    for english, words in reversed(tuple(_WORDS.items()))
    for word in words.split()
    for spelling in _list_spellings(word)
}
_SPELLINGS = tuple(_ENGLISH)
_PREFIXED = frozenset(spelling for word in _ANY_PREFIX.split() for spelling in _list_spellings(word))
_SEARCH = AhoCorasick(list(_SPELLINGS), matchkind=MatchKind.LeftmostLongest)


class Translation(NamedTuple):
    """The name of a secret in another language: its range and the English name."""

    start: int
    end: int
    english: str


def find_names(text: str) -> list[Translation]:
    """Return the names of secrets in other languages, in order."""
    lower = text.lower()
    if len(lower) != len(text):
        lower = "".join(character.lower()[:1] for character in text)
    return [
        Translation(
            start, end, _ENGLISH[_SPELLINGS[index]].upper() if text[start:end].isupper() else _ENGLISH[_SPELLINGS[index]]
        )
        for index, start, end in _SEARCH.find_matches_as_indexes(lower)
        if not text[end : end + 1].isalpha() and (not text[start - 1 : start].isalpha() or _takes_prefix(_SPELLINGS[index]))
    ]


def _takes_prefix(word: str) -> bool:
    """Return whether a word may end a longer one: languages without spaces have no edges of words."""
    return word in _PREFIXED or unicodedata.category(word[0]) == "Lo"


def translate(text: str) -> str:
    """Return a text with the names of secrets in English: `DB_PASSWORT` is `DB_PASSWORD`."""
    for name in reversed(find_names(text)):
        text = text[: name.start] + name.english + text[name.end :]
    return text
