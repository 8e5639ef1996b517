"""What patch releases of Kafka 3.9 correct that a migration meets. Pure data.

Source: the pull request of each ticket, and the classes that differ between the jars of 3.9.0, 3.9.1 and 3.9.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

NEWEST: Final = "3.9.2"


class Role(Flag):
    """Who meets a defect."""

    BROKERS = auto()
    CONTROLLERS = auto()


@dataclass(frozen=True, slots=True)
class Correction:
    """A defect of a patch release of 3.9, and the patch release that has it no more."""

    patch: int
    ticket: str
    defect: str
    role: Role


CORRECTIONS: Final = (
    Correction(
        1,
        "KAFKA-18723",
        "a follower can append records of a leader that has lost its leadership, which its successor does not have",
        Role.BROKERS | Role.CONTROLLERS,
    ),
    Correction(
        2,
        "KAFKA-17941",
        "a broker that restarts never loads a partition of the transactions' topic that ends with an empty batch",
        Role.BROKERS,
    ),
    Correction(
        2,
        "KAFKA-19294",
        "a broker in KRaft mode can miss its heartbeats under load, and the controllers fence it",
        Role.BROKERS,
    ),
    Correction(
        2,
        "KAFKA-19990",
        "a broker ends if a controller refuses its login as it asks for producer ids",
        Role.BROKERS,
    ),
    Correction(
        2,
        "KAFKA-19480",
        "the takeover hangs at a znode /migration without data, such as zookeeper-security-migration creates",
        Role.CONTROLLERS,
    ),
)
_PATCH: Final = re.compile(r"3\.9\.(\d+)(?!\d)")


def lacking(version: str, role: Role) -> Iterator[Correction]:
    """Yield what a version or an image's tag lacks; nothing where it names no patch release of 3.9.

    Parameters
    ----------
    version
        Text that contains the version, such as ``3.9.1`` or ``apache/kafka:3.9.1``.
    role
        Who runs it.
    """
    match = _PATCH.search(version)
    if match is None:
        return
    yield from (each for each in CORRECTIONS if int(match[1]) < each.patch and role in each.role)
