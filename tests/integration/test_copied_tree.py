"""The copy of a tree against the ZooKeeper that wrote the tree: what each answers of a znode, and what a next child is called."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat
from tests.support.kafka_processes import kafka_libraries
from tests.support.traps import CHROOT, SETTINGS, TRAPS, planted
from tests.support.zookeeper_ensemble import Ensemble, zookeeper_ensemble

from kraftbridge.metadata.zookeeper.reader import ZooKeeperReader, read_dump, write_dump
from kraftbridge.models.rehearsal import Ending, RehearsalVerdict
from kraftbridge.models.report import ZooKeeperAccess
from kraftbridge.rehearsal.rehearse import RehearsalOptions, rehearse
from kraftbridge.rehearsal.tree import SnapshotWriter

pytestmark = pytest.mark.integration

SEQUENCES = {
    "/config/changes": "config_change_",
    "/isr_change_notification": "isr_change_",
    "/log_dir_event_notification": "log_dir_event_",
    "/kafka-acl-changes": "acl_changes_",
    "/kafka-acl-extended-changes": "acl_changes_",
    "/delegation_token/token_changes": "token_change_",
}
"""Folders of Kafka's sequential znodes (``kafka.zk.ZkData``)."""
VALUES = (
    "/controller_epoch",
    "/brokers/seqid",
    "/latest_producer_id_block",
    "/brokers/topics/t/partitions/0/state",
    "/config/topics/t",
    "/kafka-acl/Topic/t",
    "/feature",
)
"""Znodes that Kafka writes with the version that it read, or whose version it copies or counts with."""
BROKER = {"endpoints": ["PLAINTEXT://kafka-0:9092"], "host": "kafka-0", "port": 9092, "version": 5}
NUMBERS = count()

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("notify"), st.sampled_from(sorted(SEQUENCES)), st.integers(1, 12)),
        st.tuples(st.just("purge"), st.sampled_from(sorted(SEQUENCES)), st.integers(1, 12)),
        st.tuples(st.just("write"), st.sampled_from(VALUES), st.integers(1, 5)),
        st.tuples(st.just("replace"), st.sampled_from(VALUES), st.just(1)),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def original() -> Iterator[Ensemble]:
    with zookeeper_ensemble() as running:
        yield running


@contextmanager
def client_of(ensemble: Ensemble, chroot: str = "") -> Iterator[KazooClient]:
    client = KazooClient(ensemble.hosts + chroot)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def grow(client: KazooClient, steps: list[tuple[str, str, int]]) -> None:
    """Make a tree as Kafka and its users do: notifications come and are purged, values are written or made anew."""
    client.create("/brokers/ids/0", json.dumps(BROKER).encode(), ephemeral=True, makepath=True)
    client.create("/cluster/id", b'{"version":"1","id":"abc"}', makepath=True)
    for path in (*SEQUENCES, *VALUES):
        client.ensure_path(path)
    for step, path, times in steps:
        for _ in range(times):
            if step == "notify":
                client.create(f"{path}/{SEQUENCES[path]}", b"{}", sequence=True)
            elif step == "purge":
                oldest = sorted(client.get_children(path))[:1]
                [client.delete(f"{path}/{name}") for name in oldest]
            else:
                if step == "replace":
                    client.delete(path)
                    client.create(path, b"again")
                client.set(path, b"x")


def copied(original: Ensemble, chroot: str, copy: Ensemble, dump: Path) -> None:
    """Write the dump of a tree, and the data directory of a server with its copy."""
    with ZooKeeperReader(ZooKeeperAccess(connect=original.hosts + chroot)) as reader:
        write_dump(reader.walk(), dump, chroot)
    writer = SnapshotWriter((40001,))
    writer.take(read_dump(dump, chroot))
    writer.write(copy.directory / "data-0" / "version-2")


def answers(client: KazooClient, path: str = "/") -> dict[str, ZnodeStat]:
    """Return what a server says of each znode."""
    found = {} if path == "/" else {path: client.exists(path)}
    for name in client.get_children(path):
        if path != "/" or name != "zookeeper":
            found |= answers(client, f"{path.rstrip('/')}/{name}")
    return found


@given(steps=STEPS)
@example(steps=[("notify", "/config/changes", 58), ("purge", "/config/changes", 21)])
@settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # each example starts a server, and shrinking needs many
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_copy_answers_as_the_zookeeper_that_wrote_the_tree(
    steps: list[tuple[str, str, int]], original: Ensemble, tmp_path: Path
) -> None:
    chroot = f"/case-{next(NUMBERS)}"
    with client_of(original) as client:
        client.create(chroot)
    with client_of(original, chroot) as source, zookeeper_ensemble(started=False) as ensemble:
        grow(source, steps)
        copied(original, chroot, ensemble, tmp_path / "zk.jsonl")
        ensemble.start()
        with client_of(ensemble) as copy:
            expected, found = answers(source), answers(copy)
            assert found.keys() == expected.keys()
            for path, stat in expected.items():
                same = stat._replace(ctime=0, mtime=0, ephemeralOwner=0, pzxid=found[path].pzxid)
                if path == "/brokers/ids/0":  # with an address on this machine
                    same = same._replace(dataLength=found[path].dataLength)
                assert found[path] == same, path
            for path in expected.keys() - {"/brokers/ids/0"}:  # an ephemeral one has no children
                names = [client.create(f"{path}/next_", sequence=True) for client in (source, copy)]
                assert names[0] == names[1], path


def test_kafka_reads_no_other_field_of_a_znode_than_those_that_are_copied() -> None:
    """What the copy lacks is read by ZooKeeper-mode brokers alone, and none runs in a rehearsal.

    ``KafkaZkClient`` puts the mtime of `/migration` into its own log line, and nowhere else.
    """
    fields = [name for name in dir(ZnodeStat) if name in ZnodeStat._fields]
    getters = {f"get{name[0].upper()}{name[1:]}".encode(): name for name in fields}
    read: dict[str, set[str]] = {}
    for jar in kafka_libraries().glob("kafka*-3*.jar"):
        archive = zipfile.ZipFile(jar)
        for name in archive.namelist():
            content = archive.read(name) if name.endswith(".class") else b""
            if b"org/apache/zookeeper/data/Stat" in content:
                for getter, field in getters.items():
                    read.setdefault(field, set()).update({name} if getter in content else ())
    copied_fields = {"version", "czxid", "mzxid", "cversion", "dataLength", "numChildren"}
    assert {field: names for field, names in read.items() if names and field not in copied_fields} == {
        "ctime": {"kafka/common/ZkNodeChangeNotificationListener.class"},
        "mtime": {"kafka/zk/KafkaZkClient.class"},
        "ephemeralOwner": {"kafka/zk/KafkaZkClient$CheckedEphemeral.class"},
    }


def test_configs_that_changed_in_the_last_quarter_of_an_hour_fail_no_rehearsal(
    original: Ensemble, tmp_path: Path
) -> None:
    """Kafka's sync writes every quota anew, and a notification for each.

    A ZooKeeper-mode controller purges notifications that are older than 15 minutes.
    """
    stored = planted(TRAPS["none"], tmp_path / "stored.jsonl")
    original.load(stored)
    with client_of(original, CHROOT) as source:
        for _ in range(58):
            source.create("/config/changes/config_change_", b"{}", sequence=True)
        for number in range(21):
            source.delete(f"/config/changes/config_change_{number:010d}")
    dump = tmp_path / "zk.jsonl"
    with ZooKeeperReader(ZooKeeperAccess(connect=original.hosts + CHROOT)) as reader:
        write_dump(reader.walk(), dump, CHROOT)

    result = rehearse(dump, RehearsalOptions(kafka_libraries(), tmp_path / "work", CHROOT, SETTINGS))

    assert (result.verdict, result.ending) == (RehearsalVerdict.WORKS, Ending.DUAL_WRITE), result.to_json(indent=1)
