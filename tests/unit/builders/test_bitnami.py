"""What Bitnami's image needs besides Kafka's settings. `make e2e-layouts` runs the image's own scripts with it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.builders.test_brokers import FACTS, environment_in, migration_spec

from kraftbridge.builders import bitnami
from kraftbridge.builders.broker_overlays import configuration, overlay
from kraftbridge.models.phase import BrokerMode

CFG = migration_spec(envPrefix="KAFKA_CFG_")
KEPT_ID = bitnami.node_id_command(())["KAFKA_NODE_ID_COMMAND"]
WRITER = "KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS"


def kraft(*given: str, inherited: tuple[str, ...] = ()) -> dict[str, str]:
    facts = replace(FACTS, variables=given, inherited=frozenset(inherited))
    return environment_in(overlay(CFG, facts, "kafka", BrokerMode.KRAFT))


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ((), KEPT_ID),
        (("KAFKA_CFG_BROKER_ID",), KEPT_ID),
        (("KAFKA_BROKER_ID",), KEPT_ID),  # the image makes the one of the other
        (("KAFKA_BROKER_ID_COMMAND", "BROKER_ID_COMMAND"), 'eval "$KAFKA_BROKER_ID_COMMAND"'),
        (("BROKER_ID_COMMAND",), 'eval "$BROKER_ID_COMMAND"'),
        (("KAFKA_CFG_NODE_ID",), None),
        (("KAFKA_NODE_ID",), None),
        (("KAFKA_NODE_ID_COMMAND",), None),
    ],
)
def test_the_node_id_is_the_broker_id_wherever_the_image_takes_it_from(
    given: tuple[str, ...], command: str | None
) -> None:
    for built in (kraft(*given), kraft(inherited=given)):
        assert built.get("KAFKA_NODE_ID_COMMAND") == command


@pytest.mark.parametrize(
    ("given", "kept", "node_id"),
    [
        ({"KAFKA_CFG_BROKER_ID": "101"}, "broker.id=7", "101"),
        ({"KAFKA_CFG_BROKER_ID": "0"}, "", "0"),
        ({}, "version=0\nbroker.id=7\ncluster.id=x", "7"),
        ({}, "version=1\nnode.id=7\ncluster.id=x", "7"),
        # The charts 21.3 to 23 look for node.id in KRaft mode, and those before for broker.id.
        ({"KAFKA_CFG_NODE_ID": ""}, "version=0\nbroker.id=7", "7"),
        ({"KAFKA_CFG_BROKER_ID": ""}, "version=1\nnode.id=7", "7"),
        ({"KAFKA_CFG_NODE_ID": "7"}, "version=1\nnode.id=7", "7"),
        ({}, "", ""),
    ],
)
@pytest.mark.parametrize("more", ["", ",/elsewhere"])
def test_a_broker_keeps_its_id_however_the_image_and_the_disk_have_it(
    tmp_path: Path, given: dict[str, str], kept: str, node_id: str, more: str
) -> None:
    if kept:
        (tmp_path / "meta.properties").write_text(kept + "\n")
    script = 'set -o errexit -o nounset -o pipefail\nKAFKA_CFG_NODE_ID="$(eval "$COMMAND")"\necho "$KAFKA_CFG_NODE_ID"'
    variables = {"PATH": os.environ["PATH"], "COMMAND": KEPT_ID, "KAFKA_CFG_LOG_DIRS": f"{tmp_path}{more}", **given}
    done = subprocess.run(["bash", "-c", script], env=variables, check=True, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (node_id, "")


def test_an_alias_that_the_user_has_is_the_variable_that_counts() -> None:
    """The image copies each alias over the variable with ``CFG``."""
    with_aliases = kraft("KAFKA_ZOOKEEPER_CONNECT", inherited=("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",))
    assert with_aliases["KAFKA_ZOOKEEPER_CONNECT"] == ""
    assert with_aliases["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].startswith("CONTROLLER:")
    assert not {"KAFKA_CFG_ZOOKEEPER_CONNECT", "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP"} & with_aliases.keys()
    assert with_aliases["KAFKA_CFG_CONTROLLER_LISTENER_NAMES"] == "CONTROLLER", "it has no alias"
    without = kraft()
    assert without["KAFKA_CFG_ZOOKEEPER_CONNECT"] == ""
    assert not {"KAFKA_ZOOKEEPER_CONNECT", "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"} & without.keys()


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
def test_zookeeper_stays_in_migration_mode_and_where_the_image_does_not_mind(prefix: str) -> None:
    spec = migration_spec(envPrefix=prefix)
    there = environment_in(overlay(spec, FACTS, "kafka", BrokerMode.MIGRATION))
    assert not [name for name in there if name.endswith("ZOOKEEPER_CONNECT") or "NODE_ID" in name]
    on_kraft = environment_in(overlay(spec, FACTS, "kafka", BrokerMode.KRAFT))
    assert ("KAFKA_CFG_ZOOKEEPER_CONNECT" in on_kraft) is (prefix == bitnami.PREFIX)
    assert on_kraft["KAFKA_KRAFT_CLUSTER_ID" if prefix == bitnami.PREFIX else "CLUSTER_ID"] == FACTS.cluster_id


@pytest.mark.parametrize("style", ["Env", "Properties"])
@pytest.mark.parametrize("mode", [BrokerMode.MIGRATION, BrokerMode.KRAFT])
def test_the_image_stops_to_write_to_zookeeper(style: str, mode: BrokerMode) -> None:
    spec = migration_spec(style)
    facts = replace(FACTS, zookeeper_writers=(WRITER,))
    assert environment_in(overlay(spec, facts, "kafka", mode))[WRITER] == "false"
    assert WRITER not in environment_in(overlay(spec, FACTS, "kafka", mode))
    assert configuration(spec, facts, mode) != configuration(spec, FACTS, mode)


def test_every_alias_is_the_name_of_its_setting_or_one_of_the_images_older_names() -> None:
    older = {name for name, setting in bitnami.ALIASES.items() if bitnami.alias_of(setting) != name}
    assert older == {
        "KAFKA_LOGS_DIRS",
        "KAFKA_SEGMENT_BYTES",
        "KAFKA_MAX_MESSAGE_BYTES",
        "KAFKA_ZOOKEEPER_CONNECT_TIMEOUT_MS",
    }
    assert bitnami.alias_of("controller.listener.names") == ""
