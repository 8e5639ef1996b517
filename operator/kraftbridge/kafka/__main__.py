"""``python -m kraftbridge.kafka remove-quota|remove-config``:
remove what Kafka's own tools cannot remove.

A quota that Kafka does not know is copied, and stops the sync to ZooKeeper for ever
(``KRaftMigrationDriver``, ``SYNC_KRAFT_TO_ZK``). ``kafka-configs.sh`` refuses its name,
and the controller accepts its removal (``ClientQuotaControlManager``, API key 49).

A config with more than 32,767 bytes stops the controllers (KAFKA-18908). ``kafka-configs.sh`` asks for
all configs before it deletes one, and no broker can answer with such a value; a deletion alone works (KIP-339).
"""  # noqa: D205 - the description in the command's help

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest

from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.kafka.client import Security, inlined
from kraftbridge.kafka.wire import NOT_CONTROLLER, Connection, WireError, error_name, host_ports
from kraftbridge.outside import bounds
from kraftbridge.outside.properties import parse_properties
from kraftbridge.outside.visible import visible_lines

_REQUEST_SECONDS: Final = 15.0
_ENTITIES: Final = {"user": "user", "client": "client-id", "ip": "ip"}
"""Entity types of ``AlterClientQuotasRequest``, by option."""
_RESOURCES: Final = {"topic": 2, "broker": 4}
"""``ConfigResource.Type``, by option."""
_DELETE: Final = 1
"""``AlterConfigOp.OpType``."""

Removal = Callable[[tuple[str, int], Security], int]
"""Removes something at an address, and returns Kafka's error code."""


def remove_quota(address: tuple[str, int], security: Security, entity: Mapping[str, str | None], quota: str) -> int:
    """Remove a quota of an entity, and return Kafka's error code.

    Parameters
    ----------
    entity
        Names by entity type (``user``, ``client-id``, ``ip``). None is the default entity.

    Raises
    ------
    WireError
        The node does not answer in time.
    """
    entry = AlterClientQuotasRequest.EntryData
    entity_rows = [entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    entries = [entry(entity=entity_rows, ops=[entry.OpData(key=quota, value=0.0, remove=True)])]
    with Connection(*address, security, _REQUEST_SECONDS) as connection:
        answer: Any = connection.call(
            AlterClientQuotasRequest, _REQUEST_SECONDS, max_version=1, entries=entries, validate_only=False
        )
    return int(answer.entries[0].error_code)


def remove_config(address: tuple[str, int], security: Security, resource: tuple[str, str], config: str) -> int:
    """Delete a config of a resource, and return Kafka's error code.

    Parameters
    ----------
    resource
        Type (``topic``, ``broker``) and name. An empty name stands for all brokers.

    Raises
    ------
    WireError
        The node does not answer in time.
    """
    kind, name = resource
    row = IncrementalAlterConfigsRequest.AlterConfigsResource
    deletion = row.AlterableConfig(name=config, config_operation=_DELETE, value=None)
    altered = row(resource_type=_RESOURCES[kind], resource_name=name, configs=[deletion])
    with Connection(*address, security, _REQUEST_SECONDS) as connection:
        answer: Any = connection.call(
            IncrementalAlterConfigsRequest, _REQUEST_SECONDS, max_version=1, resources=[altered], validate_only=False
        )
    return int(answer.responses[0].error_code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; exit code 0 means that a node removed what was asked."""
    options = _parse(arguments)
    started = time.monotonic()
    failures = []
    try:
        properties = parse_properties(options.client_config.read_text()) if options.client_config else {}
        security = Security.from_properties(inlined(properties, bounds.file))
    except (OSError, ValueError, InvalidSpecError) as error:
        sys.stderr.write(visible_lines(f"{options.client_config}: {error}\n"))
        return 2
    what, remove = _removal(options)
    for host, port in host_ports(options.nodes):
        try:
            code = remove((host, port), security)
        except WireError as error:
            failures.append(f"{host}:{port}: {error}")
            continue
        if code == 0:
            sys.stdout.write(visible_lines(f"{host}:{port} removed {what}\n"))
            return 0
        reason = "not the active controller" if code == NOT_CONTROLLER else error_name(code)
        failures.append(f"{host}:{port}: {reason}")
    seconds = time.monotonic() - started
    sys.stderr.write(visible_lines(f"No node removed {what} in {seconds:.1f} s: {'; '.join(failures)}\n"))
    return 1


def _removal(options: argparse.Namespace) -> tuple[str, Removal]:
    """Return what is to be removed, in words, and what removes it."""
    named = _named(options)
    if options.command == "remove-config":
        ((kind, name),) = named.items()
        where = f"{kind} {name}" if name else "all brokers"
        return f"config {options.config} of {where}", partial(
            remove_config, resource=(kind, name), config=options.config
        )
    entity = {_ENTITIES[option]: name or None for option, name in named.items()}
    return f"quota {options.quota} of {entity}", partial(remove_quota, entity=entity, quota=options.quota)


def _named(options: argparse.Namespace) -> dict[str, str]:
    """Return the given names by option."""
    given = {option: getattr(options, option, None) for option in (*_ENTITIES, *_RESOURCES)}
    return {option: name for option, name in given.items() if name is not None}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.kafka", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    quota = commands.add_parser("remove-quota", help="remove a quota that Kafka does not know")
    quota.add_argument("--quota", required=True, help="name of the quota, as in the znode")
    for option in _ENTITIES:
        quota.add_argument(f"--{option}", metavar="NAME", help=f"the {option}; an empty name is the default {option}")
    config = commands.add_parser("remove-config", help="remove a config that is too long to be shown")
    config.add_argument("--config", required=True, help="name of the config")
    config.add_argument("--topic", metavar="NAME", help="the topic")
    config.add_argument("--broker", metavar="ID", help="the broker; an empty id is all of them")
    for command in (quota, config):
        command.add_argument(
            "--controllers",
            "--brokers",
            dest="nodes",
            required=True,
            metavar="HOST:PORT,…",
            help="all KRaft controllers; before the takeover, all brokers",
        )
        command.add_argument(
            "--client-config", type=Path, metavar="FILE", help="client.properties for the listener of these nodes"
        )
    options = parser.parse_args(arguments)
    named = _named(options)
    if options.command == "remove-config" and len(named) != 1:
        parser.error("one of --topic and --broker is needed")
    if not named:
        parser.error("one of --user, --client and --ip is needed")
    return options


if __name__ == "__main__":
    sys.exit(main())
