"""The scratch controller's configuration: the real controllers' settings, except those that reach outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import javaproperties

from kraftbridge.rehearsal.tree import BrokerRegistration

NODE_ID: Final = 3000
_LISTENER: Final = "REHEARSAL"
_ADDRESSES: Final = "an address of the real cluster"
REPLACED: Final[Mapping[str, str]] = {
    "process.roles": "the rehearsal runs a controller",
    "node.id": "one scratch controller",
    "broker.id": "one scratch controller",
    "controller.quorum.voters": _ADDRESSES,
    "controller.quorum.bootstrap.servers": _ADDRESSES,
    "listeners": _ADDRESSES,
    "advertised.listeners": _ADDRESSES,
    "controller.listener.names": "one listener on loopback, without TLS and SASL",
    "listener.security.protocol.map": "the disarmed endpoints need no credentials",
    "inter.broker.listener.name": "one of the registered listeners",
    "security.inter.broker.protocol": "one of the registered listeners",
    "log.dirs": "scratch directory",
    "log.dir": "scratch directory",
    "metadata.log.dir": "scratch directory",
    "zookeeper.connect": "the scratch ZooKeeper",
    "zookeeper.set.acl": "the scratch ZooKeeper has no users",
    "zookeeper.clientCnxnSocket": "the scratch ZooKeeper speaks no TLS",
    "zookeeper.metadata.migration.enable": "always on",
    "broker.session.timeout.ms": "registrations are not fenced while the copy keeps the controller busy",
    "metric.reporters": "nothing leaves the rehearsal",
    "auto.include.jmx.reporter": "nothing leaves the rehearsal",
    "super.users": "the rehearsal's own principal is added",
    "principal.builder.class": "the listener has no TLS and SASL, whose sessions it may expect",
}
"""Settings that a rehearsal replaces, with the reason."""
_REPLACED_FOLDERS: Final = ("zookeeper.ssl.", "ssl.", "sasl.", "listener.name.")
_ANONYMOUS: Final = "User:ANONYMOUS"


def controller_properties(
    settings: Mapping[str, str],
    port: int,
    zookeeper_port: int,
    log_directory: Path,
    brokers: Sequence[BrokerRegistration],
    session_milliseconds: int = 3_600_000,
) -> tuple[str, dict[str, str]]:
    """Return the scratch controller's properties file, and the replaced settings with reasons."""
    names = list(dict.fromkeys(listener.name for broker in brokers for listener in broker.listeners))
    kept = {key: value for key, value in settings.items() if _reason(key) is None}
    replaced = {key: reason for key in settings if (reason := _reason(key)) is not None}
    inter_broker = settings.get("inter.broker.listener.name", "")
    own = {
        "process.roles": "controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{port}",
        "log.dirs": str(log_directory),
        "listeners": f"{_LISTENER}://127.0.0.1:{port}",
        "controller.listener.names": _LISTENER,
        # The controller refuses a registration of a migrating broker without this listener (`ClusterControlManager`).
        "inter.broker.listener.name": inter_broker if inter_broker in names else names[0],
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in dict.fromkeys([_LISTENER, *names])),
        "zookeeper.metadata.migration.enable": "true",
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "broker.session.timeout.ms": str(session_milliseconds),
    }
    if settings.get("authorizer.class.name"):
        own["super.users"] = ";".join(user for user in (settings.get("super.users", ""), _ANONYMOUS) if user)
    text = "".join(javaproperties.join_key_value(key, value) + "\n" for key, value in (kept | own).items())
    return text, replaced


def _reason(key: str) -> str | None:
    if key.startswith(_REPLACED_FOLDERS):
        return "the listener on loopback has no TLS and SASL"
    return REPLACED.get(key)
