r"""Texts without secrets: known values in each of their spellings, and what the name before it calls a secret. Pure.

A secret rarely stays as it was written.
JSON, YAML, properties files, pages and shells escape it, addresses have it URL-encoded, Kubernetes in base64,
and our own ConfigMaps packed.
What is encoded is decoded and looked through, so that a secret inside of it is seen, too.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final
from urllib.parse import quote, quote_plus, unquote_plus

from kraftbridge.models.secrecy import SENSITIVE_NAME, is_secret_setting

REMOVED: Final = "***REMOVED***"
_SHORTEST: Final = 4
"""Minimum length of a value. A shorter value would match by chance."""
_SHORTEST_ENCODED: Final = 8
"""The same of a part of base64, of a hexadecimal spelling and of a line."""
_DEEPEST: Final = 3
"""How often a text inside of an encoded text is decoded again."""
_UNPACKED_BYTES: Final = 16 << 20
_GZIP: Final = 31
"""``wbits`` of zlib for a gzip stream (RFC 1952)."""
_PACKED: Final = b"\x1f\x8b"

_SENSITIVE: Final = f"(?:{SENSITIVE_NAME})"
# A name begins where no other character of a name precedes, and is short: each place of a text is looked at once.
_NAME: Final = rf"(?<![\w.\-])(?P<key>[\w.\-]{{0,200}}?{_SENSITIVE}[\w.\-]{{0,200}})"
_QUOTE: Final = r"""\\{0,7}["']"""
_ESCAPED: Final = r"\\[^\n]|\\\n"
_QUOTED: Final = rf"""(?:"(?:[^"\\\n]|{_ESCAPED})*+"|'(?:[^'\\\n]|{_ESCAPED})*+')"""
_LINE: Final = rf"(?:[^\s,;}}\]\\]|{_ESCAPED})(?:[^\n\\]|\\\n|\\)*+"
ASSIGNMENT: Final = re.compile(
    rf"{_NAME}(?P<is>(?:{_QUOTE})?[ \t]*[=:][ \t]*)(?P<value>{_QUOTED}|{_LINE})", re.IGNORECASE
)
"""A sensitive name and its value, which ends with its quote or with the line, and goes on behind a backslash."""
_SHORT_ASSIGNMENT: Final = re.compile(
    rf"{_NAME}(?P<is>(?:{_QUOTE})?\s{{0,20}}[=:]\s{{0,20}})"
    rf"""(?P<value>{_QUOTED}|(?:\\{{0,7}}["'])?[^,"'\s}}\]]+)""",
    re.IGNORECASE,
)
"""The same in a sentence, where a value ends with its word."""
_OPTION: Final = re.compile(
    rf"(?<![\w.\-])(?P<key>--?[\w.\-]{{0,100}}?{_SENSITIVE}[\w.\-]{{0,100}})"
    rf"""(?P<is>(?:{_QUOTE})?,?[ \t]*(?:\n[ \t]*(?:-[ \t]+)?)?[ \t]*)"""
    r"""(?P<value>"[^"\n]*+"|'[^'\n]*+'|[^\s,;}\]\-][^\s,;}\]]*+)""",
    re.IGNORECASE,
)
"""The same of a command's option, and of two entries of a list of arguments."""
_BLOCK: Final = re.compile(
    rf"^(?P<indent>[ \t]*)(?P<name>(?:- )?[\"']?[\w.\-]{{0,200}}?{_SENSITIVE}[\w.\-]{{0,200}}[\"']?:"
    r"[ \t]*[|>][-+0-9]*[ \t]*)\n"
    r"(?:(?P=indent)[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)+",
    re.IGNORECASE | re.MULTILINE,
)
"""A block of YAML below a sensitive name."""
_ENV_VALUE: Final = re.compile(
    rf"(- name: [\w.\-]{{0,200}}?{_SENSITIVE}[\w.\-]{{0,200}}\n\s+value: )[^\n]*(?:\n(?!\s*- )\s{{8,}}[^\n]*)*",
    re.IGNORECASE,
)
_JSON_TEXT: Final = r'"(?:[^"\\\n]|\\.)*+"'
_ENV_JSON: Final = re.compile(
    rf'("name"\s{{0,20}}:\s{{0,20}}"[\w.\-]{{0,200}}?{_SENSITIVE}[\w.\-]{{0,200}}",'
    rf'\s{{0,20}}"value"\s{{0,20}}:\s{{0,20}}){_JSON_TEXT}',
    re.IGNORECASE,
)
_ENV_JSON_TURNED: Final = re.compile(
    rf'("value"\s{{0,20}}:\s{{0,20}}){_JSON_TEXT}'
    rf'(,\s{{0,20}}"name"\s{{0,20}}:\s{{0,20}}"[\w.\-]{{0,200}}?{_SENSITIVE}[\w.\-]{{0,200}}")',
    re.IGNORECASE,
)
PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----|\Z)",
    re.DOTALL,
)
"""A private key in PEM, also one whose end is missing."""
_BEARER: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=\-]{8,}", re.IGNORECASE)
_JWT: Final = re.compile(r"(?<![\w\-])eyJ[\w\-]{8,}+\.[\w\-]{8,}+\.[\w\-]*+")
_LOGIN: Final = re.compile(r"(?<![^\s/=,\"'])([^\s/:@=,\"']{1,100}:)(?!//)[^\s/@\"',]{1,200}(?=@[\w\[])")
"""User and password before a host."""
_REFERENCE: Final = re.compile(
    r"^(?:secretName|secretKeyRef|(?:\w*S|s)ecretRef|clientConfigSecret|passwordEncoderSecret|zookeeperSecret)$"
)
"""Fields of Kubernetes and of our own resource that name a Secret."""
_WORD: Final = re.compile(r"[^\s\"'<>]+")
_ALPHABET: Final = r"[A-Za-z0-9+/_\-]"
_LINE_END: Final = r"[ \t]*+(?:\\r|\\n|\r|\n)(?:\\r|\\n|\s)*+"
_BASE64: Final = re.compile(
    rf"(?<!{_ALPHABET})(?:(?:{_ALPHABET}{{40,}}+{_LINE_END})+{_ALPHABET}++={{0,2}}|{_ALPHABET}{{8,}}+={{0,2}})"
)
_BASE64_SPACE: Final = re.compile(r"\\r|\\n|\s")
_STANDARD: Final = str.maketrans("-_", "+/")
_URL_SAFE: Final = str.maketrans("+/", "-_")
_PROPERTIES: Final = str.maketrans({each: f"\\{each}" for each in "\\=:#!"})


class Redactor:
    """Removes known values, and everything that looks like a secret, from text.

    Parameters
    ----------
    values
        Secret values as they appear in a log or a configuration.
    removed
        What stands in place of a secret.
    sentences
        The texts are messages: what is no known value ends with its word, not with its line.
    """

    def __init__(self, values: Iterable[str] = (), removed: str = REMOVED, *, sentences: bool = False) -> None:
        known = {part for value in values for part in _parts(value)}
        spelled = {spelling for part in known for spelling in _spellings(part)}
        self._spellings = sorted(spelled, key=len, reverse=True)
        self._bytes = tuple(part.encode("utf-8", "surrogatepass") for part in known)
        self.removed = removed
        """What stands in place of a secret."""
        self._assignment = _SHORT_ASSIGNMENT if sentences else ASSIGNMENT

    def redact(self, text: str) -> str:
        """Return text without secrets."""
        return self._redacted(text, _DEEPEST)

    def found_in(self, text: str) -> bool:
        """Return whether a text has a known value, in one of its spellings or inside of what is encoded."""
        return self._holds(text, _DEEPEST)

    def _holds(self, text: str, depth: int) -> bool:
        if any(spelling in text for spelling in self._spellings):
            return True
        if depth == 0:
            return False
        words = (unquote_plus(word) for word in _WORD.findall(text) if "%" in word) if "%" in text else iter(())
        contents = chain.from_iterable(map(_contents, _BASE64.findall(text)))
        return any(self._holds(inner, depth - 1) for inner in words) or any(
            self._has_value(content) or self._holds(_text(content), depth - 1) for content in contents
        )

    def _redacted(self, text: str, depth: int) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, self.removed)
        text = PRIVATE_KEY.sub(self.removed, text)
        text = _BLOCK.sub(rf"\g<indent>\g<name>\n\g<indent>  {self.removed}\n", text)
        text = _ENV_VALUE.sub(rf"\g<1>{self.removed}", text)
        text = _ENV_JSON.sub(rf'\g<1>"{self.removed}"', text)
        text = _ENV_JSON_TURNED.sub(rf'\g<1>"{self.removed}"\g<2>', text)
        text = _BEARER.sub(rf"\g<1> {self.removed}", text)
        text = _JWT.sub(self.removed, text)
        text = _LOGIN.sub(rf"\g<1>{self.removed}", text)
        text = self._assignment.sub(self._without_value, text)
        text = _OPTION.sub(rf"\g<key>\g<is>{self.removed}", text)
        if depth == 0:
            return text
        text = _BASE64.sub(lambda match: self._without_encoded(match[0], depth - 1), text)
        if "%" not in text:
            return text
        return _WORD.sub(lambda match: self._without_percent(match[0], depth - 1), text)

    def _without_value(self, match: re.Match[str]) -> str:
        key = match["key"]
        value = match["value"]
        # Names of Secrets and empty structures are not secret, and are needed for support.
        # The name of a field of Kubernetes has no dot, that of a setting has.
        is_reference = "." not in key and _REFERENCE.search(key) and ":" in match["is"]
        if is_reference or not is_secret_setting(key):
            return match[0]
        tail = "," if value.endswith(",") else ""
        return f"{key}{match['is']}{self.removed}{tail}"

    def _without_percent(self, word: str, depth: int) -> str:
        if "%" not in word:
            return word
        plain = unquote_plus(word)
        if plain == word or self._redacted(plain, depth) == plain:
            return word
        return self.removed

    def _without_encoded(self, encoded: str, depth: int) -> str:
        if any(self._is_secret(content, depth) for content in _contents(encoded)):
            return self.removed
        return encoded

    def _is_secret(self, content: bytes, depth: int) -> bool:
        if self._has_value(content):
            return True
        text = _text(content)
        # What is no text decodes to a short one by chance.
        return len(text) >= _SHORTEST_ENCODED and self._redacted(text, depth) != text

    def _has_value(self, content: bytes) -> bool:
        return any(value in content for value in self._bytes)


def _parts(value: str) -> Iterator[str]:
    """Yield a value, and each of its lines."""
    stripped = value.strip()
    if len(stripped) >= _SHORTEST:
        yield stripped
    lines = stripped.splitlines()
    if len(lines) > 1:
        shown = (line.strip() for line in lines)
        yield from (line for line in shown if len(line) >= _SHORTEST_ENCODED and not line.startswith("-----"))


def _spellings(value: str) -> Iterator[str]:
    """Yield what a value looks like in other texts."""
    data = value.encode("utf-8", "surrogatepass")
    yield value
    for escape in _ESCAPES:
        yield escape(value)
    for core in (_base64_core(data, 0), _base64_core(data, 1), _base64_core(data, 2)):
        if len(core) >= _SHORTEST_ENCODED:
            yield core
            yield core.translate(_URL_SAFE)
    if len(data) * 2 >= _SHORTEST_ENCODED:
        yield data.hex()
        yield data.hex().upper()


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _json_as_it_is(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


_ESCAPES: Final[tuple[Callable[[str], str], ...]] = (
    _json,
    _json_as_it_is,
    lambda text: _json(_json(text)),
    lambda text: _json_as_it_is(_json_as_it_is(text)),
    lambda text: quote(text, safe="", errors="surrogatepass"),
    lambda text: quote(text, errors="surrogatepass"),
    lambda text: quote_plus(text, errors="surrogatepass"),
    html.escape,
    lambda text: html.escape(text, quote=False),
    lambda text: text.replace("'", "''"),
    lambda text: text.replace("'", "'\\''"),
    lambda text: text.replace("'", "'\"'\"'"),
    lambda text: text.translate(_PROPERTIES),
    lambda text: text.replace("\\", "\\\\").replace("=", "\\="),
    lambda text: text.replace("\\", "\\\\"),
    lambda text: repr(text)[1:-1],
)
"""JSON, JSON in JSON, addresses, pages, YAML, shells, properties files, and Python."""


def _base64_core(data: bytes, offset: int) -> str:
    """Return the part of the base64 of a longer text that depends on nothing but the data, after so many bytes."""
    encoded = base64.b64encode(bytes(offset) + data).decode()
    begin = -(-offset * 8 // 6)
    end = (offset + len(data)) * 8 // 6
    return encoded[begin:end]


def _contents(encoded: str) -> Iterator[bytes]:
    """Yield what base64 may hold; of several lines, the first one may begin with characters that are none of it."""
    dense = _BASE64_SPACE.sub("", encoded).translate(_STANDARD)
    starts = range(4) if len(dense) < len(encoded) else range(1)
    for start in starts:
        content = _decoded(dense[start:])
        yield _unpacked(content) if content.startswith(_PACKED) else content


def _decoded(text: str) -> bytes:
    whole = text.rstrip("=")
    whole = whole[: len(whole) - 1] if len(whole) % 4 == 1 else whole
    try:
        return base64.b64decode(whole + "=" * (-len(whole) % 4))
    except binascii.Error:
        return b""


def _unpacked(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=_GZIP).decompress(content, _UNPACKED_BYTES)
    except zlib.error:
        return b""


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""
