"""``python -m kraftbridge.kafka remove-quota``:
remove a quota at the active controller whose name Kafka's own tools refuse.

A quota that Kafka does not know is copied, and stops the sync to ZooKeeper for ever
(``KRaftMigrationDriver``, ``SYNC_KRAFT_TO_ZK``). ``kafka-configs.sh`` refuses its name,
and the controller accepts its removal (``ClientQuotaControlManager``, API key 49).
"""  # noqa: D205 - the description in the command's help

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import javaproperties
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from kraftbridge.exceptions import InvalidSpecError
from kraftbridge.kafka.client import Security, inlined
from kraftbridge.kafka.wire import NOT_CONTROLLER, Connection, WireError, error_name, host_ports
from kraftbridge.outside import bounds

_REQUEST_SECONDS: Final = 15.0
_ENTITIES: Final = {"user": "user", "client": "client-id", "ip": "ip"}
"""Entity types of ``AlterClientQuotasRequest``, by option."""


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 0 means that the active controller removed the quota."""
    options = _parse(arguments)
    entity = {kind: name or None for kind, name in _entity_options(options).items() if name is not None}
    started = time.monotonic()
    failures = []
    try:
        properties = javaproperties.loads(options.client_config.read_text()) if options.client_config else {}
        security = Security.from_properties(inlined(properties, bounds.file))
    except (OSError, ValueError, InvalidSpecError) as error:
        sys.stderr.write(f"{options.client_config}: {error}\n")
        return 2
    for host, port in host_ports(options.controllers):
        try:
            code = remove_quota((host, port), security, entity, options.quota)
        except WireError as error:
            failures.append(f"{host}:{port}: {error}")
            continue
        if code == 0:
            sys.stdout.write(f"The active controller {host}:{port} removed quota {options.quota} of {entity}\n")
            return 0
        reason = "not the active controller" if code == NOT_CONTROLLER else error_name(code)
        failures.append(f"{host}:{port}: {reason}")
    seconds = time.monotonic() - started
    outcome = f"No controller removed quota {options.quota} of {entity} in {seconds:.1f} s"
    sys.stderr.write(f"{outcome}: {'; '.join(failures)}\n")
    return 1


def _entity_options(options: argparse.Namespace) -> dict[str, str | None]:
    """Return the given name of each entity type; None where the option is left out."""
    return {kind: getattr(options, option) for option, kind in _ENTITIES.items()}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kraftbridge.kafka", description=__doc__)
    command = parser.add_subparsers(required=True).add_parser(
        "remove-quota", help="remove a quota that Kafka does not know"
    )
    command.add_argument(
        "--controllers",
        required=True,
        metavar="HOST:PORT,…",
        help="all KRaft controllers; before the takeover, all brokers",
    )
    command.add_argument(
        "--client-config", type=Path, metavar="FILE", help="client.properties for the controllers' listener"
    )
    command.add_argument("--quota", required=True, help="name of the quota, as in the znode")
    for option in _ENTITIES:
        command.add_argument(f"--{option}", metavar="NAME", help=f"the {option}; an empty name is the default {option}")
    options = parser.parse_args(arguments)
    if set(_entity_options(options).values()) == {None}:
        parser.error("one of --user, --client and --ip is needed")
    return options


if __name__ == "__main__":
    sys.exit(main())
