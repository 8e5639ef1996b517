"""A scratch broker's configuration: the settings of a real broker in KRaft mode, except those that reach outside.

Listeners keep their names, because Kafka judges dynamic listeners, and stores of keys, by the static ones
(``DynamicListenerConfig``, ``DynamicBrokerReconfigurationTest`` of Kafka 3.9).
Each endpoint becomes a loopback port of its own, in the static settings and in the tree alike:
endpoints that were equal stay equal, and those that differed differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kraftbridge.constants import ACL_AUTHORIZER, CONTROLLER_LISTENER, CONTROLLER_LISTENER_PREFIX, STANDARD_AUTHORIZER
from kraftbridge.exceptions import RehearsalError
from kraftbridge.metadata.zookeeper.znodes import Znode
from kraftbridge.outside.json_text import parsed_json

_PROTOCOL_MAP: Final = "listener.security.protocol.map"
_ENDPOINTS: Final = ("listeners", "advertised.listeners")
_MAPPED: Final = frozenset({*_ENDPOINTS, _PROTOCOL_MAP})
"""Dynamic settings that have another value in the copy; others that are replaced are left out."""
_NODE: Final = "the number of the broker whose registration it replaces"
_ADDRESS: Final = "an address of the real cluster"
_SCRATCH: Final = "scratch directory"
_NO_LOGIN: Final = "a login needs servers and files that are not here: what it would refuse stays unknown"
_NO_STORES: Final = "no store of keys is here: what one would refuse stays unknown"
_PLUGIN: Final = "the plugin may need the network: what it would refuse stays unknown"
_QUIET: Final = "nothing leaves the rehearsal"
_NO_ZOOKEEPER: Final = "a broker in KRaft mode has no ZooKeeper"
REPLACED: Final[Mapping[str, str]] = {
    "process.roles": "the rehearsal runs a broker in KRaft mode",
    "node.id": _NODE,
    "broker.id": _NODE,
    "controller.quorum.voters": _ADDRESS,
    "controller.quorum.bootstrap.servers": _ADDRESS,
    "controller.listener.names": "the listener of the scratch controller",
    "listeners": _ADDRESS,
    "advertised.listeners": _ADDRESS,
    _PROTOCOL_MAP: _NO_LOGIN,
    "security.inter.broker.protocol": "inter.broker.listener.name names the same listener",
    "log.dirs": _SCRATCH,
    "log.dir": _SCRATCH,
    "metadata.log.dir": _SCRATCH,
    "remote.log.storage.system.enable": "nothing is read from or written to the remote storage",
    "metric.reporters": _QUIET,
    "auto.include.jmx.reporter": _QUIET,
    "kafka.metrics.reporters": _QUIET,
    "client.quota.callback.class": _PLUGIN,
}
"""Settings of a broker that a rehearsal replaces, with the reason."""
_REPLACED_FOLDERS: Final[Mapping[str, str]] = {
    "zookeeper.": _NO_ZOOKEEPER,
    "sasl.": _NO_LOGIN,
    "confluent.": _PLUGIN,
    CONTROLLER_LISTENER_PREFIX: "the listener of the scratch controller has no TLS and SASL",
}
_TOKEN_KEYS: Final = frozenset({"delegation.token.secret.key", "delegation.token.master.key"})
"""A broker without one cannot load the tokens of the tree (``DelegationTokenPublisher``)."""
_AUTHORIZER: Final = "authorizer.class.name"
_OF_LOGINS: Final = re.compile(r"listener\.name\.[^.]+\.(?:[^.]+\.)?sasl\.")
_OF_TLS: Final = re.compile(r"(?:listener\.name\.[^.]+\.)?ssl\.")
_DIRECTORY: Final = re.compile(r"(?:^|\.)(?:dirs?|directory|directories)$")
_STORE: Final = re.compile(r"(?:^|\.)ssl\.(?:keystore|truststore)\.location$")
_URL: Final = re.compile(r"[a-zA-Z][0-9+]*://")
"""The end of a URL's scheme, from its last letter on: a search for its beginning takes the square of its length."""
_OF_ADDRESSES: Final = re.compile(r"(?:^|\.)(?:servers|connect|voters|urls?|address(?:es)?|hosts?|endpoints?)$")
_ENDPOINT: Final = re.compile(r"([^:/]+)://\[?([^\[\]/,]*?)\]?:(-?\d+)")
"""``org.apache.kafka.common.Endpoint`` as text; a host may be omitted."""
_NAMES_OF_PRINCIPALS: Final = frozenset({"ssl.principal.mapping.rules", "super.users"})
"""Their values may look like addresses: ``User:spiffe://…``."""
_DYNAMIC: Final = re.compile(r"/config/brokers/([^/]+)")
_REGISTERED: Final = re.compile(r"/brokers/ids/([0-9]{1,9})")
_DEFAULT: Final = "<default>"
_NOT_BY_DEFAULT: Final = re.compile(rf"listener\.name\.|ssl\.|{'|'.join(map(re.escape, sorted(_MAPPED)))}")
"""Settings of one broker (``DynamicBrokerConfig.PerBrokerConfigs``): Kafka drops them among those for all brokers."""
_WITHOUT_SASL: Final = {"SASL_PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SSL"}
_PLAIN: Final = dict.fromkeys(("SASL_PLAINTEXT", "SASL_SSL", "SSL"), "PLAINTEXT")
_DEFAULT_MAP: Final = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
_LOOPBACK: Final = "127.0.0.1"
_OF_TOPICS: Final = (
    "/brokers/topics/",
    "/config/topics/",
    "/admin/delete_topics/",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
)


@dataclass(slots=True)
class Loopback:
    """Gives each endpoint of the real cluster a port of the loopback interface."""

    new_port: Callable[[], int]
    _ports: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def endpoints(self, text: str) -> str:
        """Return a list of endpoints on the loopback interface.

        Raises
        ------
        RehearsalError
            The text is no list of endpoints.
        """
        return ",".join(self._endpoint(part.strip()) for part in text.split(",") if part.strip())

    def _endpoint(self, text: str) -> str:
        match = _ENDPOINT.fullmatch(text)
        if match is None:
            raise RehearsalError(f"{text!r} is no endpoint as in PLAINTEXT://host:9092")
        key = (match[1].upper(), match[2], match[3])
        if key not in self._ports:
            self._ports[key] = self.new_port()
        return f"{match[1]}://{_LOOPBACK}:{self._ports[key]}"

    def real(self, text: str) -> str:
        """Return a text with the real cluster's endpoints in place of those of the loopback interface."""
        real = {
            str(number): f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for (_, host, port), number in self._ports.items()
        }
        return re.sub(rf"{re.escape(_LOOPBACK)}:(\d+)", lambda match: real.get(match[1], match[0]), text)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What one broker of the rehearsal gets."""

    broker: int
    static: Mapping[str, str]
    """Without the settings that name directories, voters and the broker itself (`properties`)."""
    dynamic: Mapping[str, str]
    """Stored for this broker, or for all: what should be in force."""
    replaced: Mapping[str, str]
    directories: int = 1
    """Number of log directories."""

    @property
    def pair(self) -> tuple[object, ...]:
        """What makes a broker of its own necessary: brokers with an equal pair start alike.

        Ports stand for the real addresses, which differ from broker to broker.
        """
        numbers: dict[str, str] = {}

        def numbered(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
            return tuple(
                (
                    name,
                    re.sub(rf"{_LOOPBACK}:\d+", lambda m: numbers.setdefault(m[0], f"#{len(numbers)}"), values[name]),
                )
                for name in sorted(values)
                if name != "broker.rack"
            )

        return numbered(self.static), numbered(self.dynamic), self.directories

    def properties(self, work: Path, controller_id: int, controller_port: int) -> dict[str, str]:
        """Return the scratch broker's properties.

        Raises
        ------
        RehearsalError
            A setting still names a directory or an address outside of the rehearsal.
        """
        directories = ",".join(str(work / f"broker-{self.broker}-{number}") for number in range(self.directories))
        found = {
            **self.static,
            "process.roles": "broker",
            "node.id": str(self.broker),
            "log.dirs": directories,
            "controller.quorum.voters": f"{controller_id}@{_LOOPBACK}:{controller_port}",
        }
        left = sorted(name for name, value in found.items() if _reaches_outside(name, value, work))
        if left:
            raise RehearsalError(
                f"the broker was not started: {', '.join(left)} name addresses or directories outside of the rehearsal"
            )
        return found


def of_broker(
    broker: int, settings: Mapping[str, str], tree: CopiedTree, left_out: Mapping[str, str] | None = None
) -> BrokerSettings:
    """Return what a broker of the rehearsal gets.

    Parameters
    ----------
    broker
        Its id.
    settings
        The real broker's ``server.properties``.
    tree
        The copy, completely taken.
    left_out
        Further settings of the real broker, whose values are not here, and why.

    Raises
    ------
    RehearsalError
        A listener cannot be understood, or a store of keys is not on this machine.
    """
    replaced = {name: reason for name, value in settings.items() if (reason := tree.reason(name, value)) is not None}
    loopback = tree.loopback
    static = {name: value for name, value in settings.items() if name not in replaced}
    listeners = settings.get("listeners") or "PLAINTEXT://:9092"
    static["listeners"] = loopback.endpoints(listeners)
    if advertised := settings.get("advertised.listeners"):
        static["advertised.listeners"] = loopback.endpoints(advertised)
    static["controller.listener.names"] = CONTROLLER_LISTENER
    protocols = tree.without_logins(settings.get(_PROTOCOL_MAP) or _DEFAULT_MAP)
    others = [part for part in protocols.split(",") if part.partition(":")[0].upper() != CONTROLLER_LISTENER]
    static[_PROTOCOL_MAP] = ",".join([*others, f"{CONTROLLER_LISTENER}:PLAINTEXT"])
    if protocol := settings.get("security.inter.broker.protocol"):
        static.setdefault("inter.broker.listener.name", protocol.strip())
    static |= {"metric.reporters": "", "auto.include.jmx.reporter": "false"}
    static |= dict.fromkeys(_TOKEN_KEYS & (left_out or {}).keys(), "of the rehearsal")
    if settings.get(_AUTHORIZER, "").strip() == ACL_AUTHORIZER:
        static[_AUTHORIZER] = STANDARD_AUTHORIZER
    stored = {
        **{name: value for name, value in tree.dynamic.get(None, {}).items() if not _NOT_BY_DEFAULT.match(name)},
        **tree.dynamic.get(broker, {}),
    }
    _check_stores(broker, {**static, **stored})
    directories = settings.get("log.dirs") or settings.get("log.dir") or "/"
    replaced |= {**(left_out or {}), **tree.replaced.get(None, {}), **tree.replaced.get(broker, {})}
    return BrokerSettings(
        broker, static, stored, replaced, len([part for part in directories.split(",") if part.strip()])
    )


def _reason(name: str, value: str) -> str | None:
    if name == _AUTHORIZER:
        return _reason_of_authorizer(value.strip())
    if name in REPLACED:
        return REPLACED[name]
    for folder, reason in _REPLACED_FOLDERS.items():
        if name.startswith(folder):
            return reason
    if _OF_LOGINS.match(name):
        return _NO_LOGIN
    if _names_address(name, value):
        return _ADDRESS
    return "a directory of the real broker" if _DIRECTORY.search(name) else None


def _reason_of_authorizer(name: str) -> str | None:
    if name in {"", STANDARD_AUTHORIZER}:
        return None
    if name == ACL_AUTHORIZER:
        return "the migration names StandardAuthorizer in its place"
    return _PLUGIN


def _without_logins(protocol_map: str, plain_protocols: Mapping[str, str]) -> str:
    """Return a protocol map with other protocols, and with a plain listener of the controllers."""
    parts = []
    for part in protocol_map.split(","):
        name, _, protocol = part.strip().partition(":")
        plain = plain_protocols.get(protocol.strip().upper(), protocol.strip())
        parts.append(f"{name}:{'PLAINTEXT' if name.upper() == CONTROLLER_LISTENER else plain}")
    return ",".join(parts)


def _check_stores(broker: int, settings: Mapping[str, str]) -> None:
    missing = sorted(
        f"{name}={value}"
        for name, value in settings.items()
        if _STORE.search(name) and not Path(value.strip()).is_file()
    )
    if missing:
        raise RehearsalError(
            f"broker {broker}: {', '.join(missing)} is not on this machine: "
            "put a copy of the file there, or rehearse where the broker runs"
        )


def _reaches_outside(name: str, value: str, work: Path) -> bool:
    """Return whether a setting names something outside, by its value alone: the last test before the start."""
    if name in _ENDPOINTS:
        return not all(part.partition("://")[2].startswith(f"{_LOOPBACK}:") for part in value.split(","))
    if name == "controller.quorum.voters":
        return f"@{_LOOPBACK}:" not in value
    if _DIRECTORY.search(name):
        return not all(Path(part).is_relative_to(work) for part in value.split(","))
    return _names_address(name, value)


def _names_address(name: str, value: str) -> bool:
    return name not in _NAMES_OF_PRINCIPALS and bool(_OF_ADDRESSES.search(name) or _URL.search(value))


@dataclass(slots=True)
class CopiedTree:
    """The tree without topics, as a broker's rehearsal needs it: a broker creates each replica when it starts."""

    loopback: Loopback
    has_stores: bool = True
    """Whether the stores of keys that settings name are here; without them every listener is a plain one."""
    dynamic: dict[int | None, dict[str, str]] = field(default_factory=dict)
    """Dynamic settings by broker; None: for all brokers. Passwords as ZooKeeper holds them."""
    brokers: list[int] = field(default_factory=list)
    """Ids of the registered brokers."""
    replaced: dict[int | None, dict[str, str]] = field(default_factory=dict)
    """Dynamic settings that are not as in the real tree, and why, by broker; None: for all brokers."""

    def anew(self) -> CopiedTree:
        """Return an empty one that gives the same ports."""
        return CopiedTree(self.loopback, self.has_stores)

    def take(self, znodes: Iterator[Znode]) -> Iterator[Znode]:
        """Yield the znodes of the copy.

        Raises
        ------
        RehearsalError
            A dynamic listener cannot be understood.
        """
        for znode in znodes:
            if znode.path.startswith(_OF_TOPICS):
                continue
            if registered := _REGISTERED.fullmatch(znode.path):
                self.brokers.append(int(registered[1]))
            match = _DYNAMIC.fullmatch(znode.path)
            yield znode if match is None else self._with_dynamic(match[1], znode)

    def _with_dynamic(self, name: str, znode: Znode) -> Znode:
        """Return a znode of dynamic settings; one that Kafka cannot read either is not changed."""
        broker = None if name == _DEFAULT else int(name) if name.isascii() and name.isdigit() else -1
        with suppress(ValueError, AttributeError, TypeError):
            body: dict[str, Any] = parsed_json(znode.data or b"")
            given = {key: str(value) for key, value in body["config"].items()}
            reasons = {key: reason for key, value in given.items() if (reason := self.reason(key, value)) is not None}
            kept = {
                key: self._copied(key, value) for key, value in given.items() if key not in reasons or key in _MAPPED
            }
            self.dynamic[broker] = kept
            self.replaced[broker] = reasons
            return replace(znode, data=json.dumps(body | {"config": kept}, separators=(",", ":")).encode())
        return znode

    def _copied(self, name: str, value: str) -> str:
        """Return a dynamic setting's value in the copy."""
        if name in _ENDPOINTS:
            return self.loopback.endpoints(value)
        return self.without_logins(value) if name == _PROTOCOL_MAP else value

    def reason(self, name: str, value: str) -> str | None:
        """Return why a setting of a broker is replaced or left out; None if it is kept."""
        if not self.has_stores and _OF_TLS.match(name):
            return _NO_STORES
        return _reason(name, value)

    def without_logins(self, protocol_map: str) -> str:
        """Return a protocol map without what is not here: logins, and TLS without stores of keys."""
        return _without_logins(protocol_map, _WITHOUT_SASL if self.has_stores else _PLAIN)
