"""Texts that are too long for KRaft, and what removes each; for every check of a tree.

A string of a record has at most ``Short.MAX_VALUE`` bytes of UTF-8 (generated ``addSize`` of ``ConfigRecord`` and
others). In ZooKeeper mode a config's value may grow beyond that by APPEND, and a name is as long as a znode's may be.
The controller exits when it copies one (KAFKA-18908; seen with 3.9.1 for values and names of topics' and brokers'
configs, principals and resources of ACLs, and names of users; configs of client metrics are not copied).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from kraftbridge.exceptions import PasswordDecodingError
from kraftbridge.metadata.entities import EncodedPassword, is_password_config, looks_encoded
from kraftbridge.metadata.zookeeper.znodes import acl_entries, config_values, json_object
from kraftbridge.outside.shell import command, option

LONGEST_TEXT: Final = 32_766
"""Bytes. Kafka 3.9.1 copies one more, and exits at two more (seen)."""
_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class LongText:
    """A text that no record takes."""

    what: str
    """Its words, subject of a sentence."""
    bytes: int
    way_out: str


def long_texts(path: str, data: bytes | None, *, decrypted: bool) -> Iterator[LongText]:
    """Yield the texts of a znode that are too long for KRaft.

    Parameters
    ----------
    path, data
        The znode.
    decrypted
        Whether the controllers have the brokers' `password.encoder.secret`. Else they copy the cipher text.

    Raises
    ------
    MetadataError
        The znode cannot be decoded, which is a finding of its own.
    """
    match path.split("/")[1:]:
        case ["config", ("topics" | "brokers") as folder, entity] if data:
            yield from _configs(folder, entity, config_values(path, data), decrypted=decrypted)
        case ["config", "users" | "clients" | "ips", *names]:
            yield from _others({f"the name {_shown(name)}": unquote(name) for name in names[::2]}, path)
        case ["kafka-acl", _, resource] | ["kafka-acl-extended", _, _, resource]:
            yield from _others({f"the resource {_shown(resource)}": resource}, path)
            for entry in acl_entries(path, data):
                parts = {f"the ACL's {part} {_shown(entry[part])}": entry[part] for part in ("principal", "host")}
                yield from _others(parts, path)
        case ["delegation_token", "tokens", _] if data:
            body = json_object(path, data)
            yield from _others({f"the token's {name}": str(text) for name, text in body.items()}, path)
        case _:
            pass


_WITH_OUR_TOOL: Final = (
    "Delete the config, from the operator's pod (kafka-configs cannot: no broker can show such a value):"
)


def _configs(folder: str, entity: str, values: Mapping[str, str], *, decrypted: bool) -> Iterator[LongText]:
    owner = "" if entity == "<default>" else entity
    for name, value in values.items():
        size = _plain_bytes(value) if decrypted and is_password_config(name) else _bytes(value)
        longest = max(_bytes(name), size)
        if longest <= LONGEST_TEXT:
            continue
        shown = _shown(name)
        removal = command(
            "python -m kraftbridge.kafka remove-config --brokers HOST:9092,… {owner} {config}",
            owner=option(folder.removesuffix("s"), owner),
            config=option("config", shown),
        )
        way_out = f"{_WITH_OUR_TOOL} {removal}. Then set a shorter one (* stands for all throttled replicas)"
        yield LongText(f"the config {shown}", longest, way_out)


def _others(texts: Mapping[str, str], path: str) -> Iterator[LongText]:
    for what, text in texts.items():
        if _bytes(text) > LONGEST_TEXT:
            yield LongText(what, _bytes(text), f"Delete znode {_shown(path)} with zookeeper-shell")


def _shown(text: str) -> str:
    """Return a text, cut where it is the part that is too long."""
    more = "…" if len(text) > _SHOWN_CHARACTERS and _bytes(text) > LONGEST_TEXT else ""
    return text[:_SHOWN_CHARACTERS] + more if more else text


def _bytes(text: str) -> int:
    """Return the length as Java writes it: a lone surrogate is a question mark (``Utf8``)."""
    return len(text.encode(errors="replace"))


def _plain_bytes(value: str) -> int:
    """Return the length of a password, or up to 16 bytes more: a cipher text is padded."""
    if not looks_encoded(value):
        return _bytes(value)
    try:
        encrypted = EncodedPassword.parse(value).parameters["encryptedPassword"]
    except PasswordDecodingError:
        return _bytes(value)  # another finding reports it
    return len(encrypted) // 4 * 3
