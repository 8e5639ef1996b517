"""Every broker setting of Kafka 3.9: what becomes of it in a migration to KRaft. The table is ``broker_settings.json``.

Preflight's findings, the controllers' configuration and ``docs/broker-settings.md`` follow from it.
Names are those of ``KafkaConfig.configDef`` of 3.9.1, which ``tests/integration/test_broker_settings.py`` compares,
and of what plugins of Kafka's own read.
Sources: Kafka's manual, "ZooKeeper to KRaft Migration" and "KRaft: Configs removed or changed";
``ControllerServer``, ``ControllerApis``, ``QuorumController``, ``BrokerServer`` of 3.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Final


class Fate(StrEnum):
    """Effect of the migration on a broker's setting."""

    STAYS = "stays"
    """The KRaft broker reads it as before."""
    MOVES = "moves to the controllers"
    """In KRaft, or while the controllers call brokers that use ZooKeeper, the controllers read it;
    brokers may keep it."""
    DIES = "dies"
    """A KRaft broker ignores it; remove it after the migration."""
    MUST_NOT_BE = "must not be"
    """The migration sets it, or KRaft refuses it: preflight blocks where it is set before."""


class Carry(StrEnum):
    """Way in which a setting gets to the controllers."""

    COPIED = "copied by the operator"
    """The operator copies it from the configuration of the running brokers."""
    SET = "set by the operator"
    GIVEN = "given by you"
    """A secret, or a class that the controllers' image must have: ``spec.controllers`` or the listener's Secret."""


@dataclass(frozen=True, slots=True)
class BrokerSettingRule:
    """One row of the table."""

    name: str
    fate: Fate
    carry: Carry | None = None
    """Of a setting that moves."""
    why: str = ""


def _rules() -> Iterator[BrokerSettingRule]:
    text = resources.files(__package__).joinpath("broker_settings.json").read_text(encoding="utf-8")
    for row in json.loads(text):
        carry = Carry(row["carry"]) if "carry" in row else None
        yield BrokerSettingRule(row["name"], Fate(row["fate"]), carry, row.get("why", ""))


RULES: Final[dict[str, BrokerSettingRule]] = {rule.name: rule for rule in _rules()}
"""Every setting by its name, in the order of the names."""

OF_AUTHORIZERS: Final = frozenset({"allow.everyone.if.no.acl.found", "authorizer.zookeeper.url", "super.users"})
"""Rows that are not in ``KafkaConfig.configDef``:
Kafka's own authorizers read them, and DescribeConfigs hides their values."""

COPIED: Final = tuple(name for name, rule in RULES.items() if rule.carry is Carry.COPIED)
"""Settings that the controllers get from the brokers' configuration."""

CLASSES: Final = tuple(name for name, rule in RULES.items() if rule.carry is Carry.GIVEN and ".class" in name)
"""Plugins of the controllers that ``spec.controllers.config`` names; their image must have the classes."""

AUTHORIZER: Final = "authorizer.class.name"

LOADED_BY_CONTROLLERS: Final = (AUTHORIZER, *CLASSES)
"""Settings whose class the controllers' image must have; the controllers take over the authorizer from the brokers."""

IGNORED_BY_KRAFT: Final = frozenset(
    name
    for name, rule in RULES.items()
    if rule.fate is Fate.DIES or name.startswith(("zookeeper.", "password.encoder."))
)
"""Settings that a KRaft broker ignores."""

MAY_CHANGE: Final = frozenset(
    {
        "broker.id.generation.enable",
        "controller.listener.names",
        "early.start.listeners",
        "inter.broker.protocol.version",
        "log.initial.task.delay.ms",
        "log.message.format.version",
        "node.id",
        "process.roles",
    }
)
"""Settings whose value a change of the mode changes: the overlay sets them, or a KRaft broker ignores them."""
_MAY_CHANGE_PREFIXES: Final = ("controller.quorum.", "listener.name.controller.", "password.encoder.", "zookeeper.")

_DESTROYING: Final = frozenset(
    {
        "log.cleaner.delete.retention.ms",
        "log.cleanup.policy",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.retention.bytes",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
        "min.insync.replicas",
        "offsets.retention.minutes",
        "unclean.leader.election.enable",
    }
)
_CUTTING_OFF: Final = frozenset(
    {
        "advertised.listeners",
        "allow.everyone.if.no.acl.found",
        "authorizer.class.name",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "principal.builder.class",
        "security.inter.broker.protocol",
        "super.users",
    }
)


def may_change(name: str) -> bool:
    """Return whether a restart in another mode may change the value of a setting."""
    return name in MAY_CHANGE or name.startswith(_MAY_CHANGE_PREFIXES)


def without_listener(name: str) -> str:
    """Return a setting's name without ``listener.name.<listener>.`` (KIP-103)."""
    if not name.startswith("listener.name."):
        return name
    return name.removeprefix("listener.name.").partition(".")[2]


def destroys(name: str) -> bool:
    """Return whether another value of a setting deletes records, or lets them be lost."""
    return name in _DESTROYING


def cuts_off(name: str) -> bool:
    """Return whether another value of a setting decides who reaches the broker, and who may do what."""
    base = without_listener(name)
    return base in _CUTTING_OFF or base.startswith(("ssl.", "sasl."))


def variable_of(setting: str, prefix: str) -> str:
    """Return the environment variable of a setting: ``.`` → ``_``, ``_`` → ``__``, ``-`` → ``___``."""
    return prefix + setting.replace("_", "__").replace("-", "___").replace(".", "_").upper()
