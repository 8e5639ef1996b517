"""What is in the brokers' log directories that does not belong there blocks, with broker, directory and replica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.observations import ANYONE, BROKER_IDS, broker_set, dry_start_of, open_gate, survey

from kraftbridge.models.decision import Decision
from kraftbridge.models.phase import Phase
from kraftbridge.models.survey import LogDir, Unobserved, Visibility, ZooKeeperAcls
from kraftbridge.models.volumes import mounts_of

DATA = "/data/kafka"


def decided(log_dirs: Any, accepted: tuple[dict[str, str], ...] = (), **changes: Any) -> Decision:
    case = open_gate(Phase.PREFLIGHT).observing(survey=survey(log_dirs=log_dirs, **changes))
    preflight = case.spec.preflight.model_validate({"accepted": list(accepted)})
    return case.asking(preflight=preflight).decide()


def every(**of: LogDir) -> dict[int, tuple[LogDir, ...] | Unobserved]:
    return {i: (of.get(f"b{i}", LogDir(DATA)), LogDir("/data/second")) for i in BROKER_IDS}


CASES = {
    "LeftoverReplicas": (
        LogDir(DATA, leftovers=("old-topic-0", "old-topic-7")),
        ("old-topic-0, old-topic-7", "on broker 2"),
    ),
    "LogDirOffline": (LogDir(DATA, error="KAFKA_STORAGE_ERROR"), ("KAFKA_STORAGE_ERROR", "Repair its volume")),
    "ReplicasMoving": (LogDir(DATA, future=("t-3",)), ("t-3", "isFuture")),
}


@pytest.mark.parametrize("code", CASES)
def test_it_blocks_and_names_broker_directory_and_partition(code: str) -> None:
    directory, words = CASES[code]
    decision = decided(every(b2=directory))
    (each,) = decision.status.findings
    assert (each.code, each.object, each.severity) == (code, f"broker/2 {DATA}", "Blocking")
    assert f"{DATA}" in each.reason
    assert "roker 2" in each.reason
    assert all(word in each.reason + each.fix for word in words)
    assert decision.status.phase is Phase.PREFLIGHT
    accepted = ({"code": code, "object": each.object},)
    assert decided(every(b2=directory), accepted).status.phase is Phase.PROVISIONING_QUORUM


def test_clean_directories_are_no_finding() -> None:
    decision = decided(every())
    assert decision.status.findings == ()
    assert decision.status.phase is Phase.PROVISIONING_QUORUM


@pytest.mark.parametrize(
    ("log_dirs", "name"),
    [
        (Unobserved("brokers", "none answered"), "brokers"),
        (every() | {1: Unobserved("broker 1", "CLUSTER_AUTHORIZATION_FAILED")}, "broker/1"),
        ({broker: directories for broker, directories in every().items() if broker != 1}, "broker/1"),
    ],
)
def test_directories_that_nobody_has_listed_block(log_dirs: Any, name: str) -> None:
    decision = decided(log_dirs)
    assert [(f.code, f.object) for f in decision.status.findings] == [("LogDirsUnknown", name)]
    assert decision.status.phase is Phase.PREFLIGHT


def test_replicas_of_topics_that_are_hidden_from_the_operator_are_not_called_left_over() -> None:
    zookeeper = ZooKeeperAcls({"/": ANYONE}, (), frozenset({"t", "hidden-1"}))
    visible = survey().visibility
    assert isinstance(visible, Visibility)
    directory = LogDir(DATA, leftovers=("gone-1", "hidden-1-0"))
    decision = decided(every(b0=directory), zookeeper=zookeeper, visibility=replace(visible, topics=frozenset({"t"})))
    found = {f.code: f.reason for f in decision.status.findings}
    assert found.keys() == {"TopicsHidden", "LeftoverReplicas"}
    assert "gone-1" in found["LeftoverReplicas"]
    assert "hidden" not in found["LeftoverReplicas"]


# ------------------------------------------------------------------------------------------- data on a claim

CLAIM, EMPTY = ["data"], {"name": "data", "emptyDir": {}}


def template(path: str, volumes: Sequence[dict[str, Any]] = (), claims: Sequence[str] = ()) -> dict[str, Any]:
    kafka = {"name": "kafka", "volumeMounts": [{"name": "data", "mountPath": path}]}
    templates = [{"metadata": {"name": name}} for name in claims]
    pod = {"containers": [{"name": "exporter"}, kafka], "volumes": list(volumes)}
    return {"spec": {"volumeClaimTemplates": templates, "template": {"spec": pod}}}


def of(volume: str, source: Any) -> list[dict[str, Any]]:
    return [{"name": "data", volume: source}]


KEPT = {
    "claim template": (template("/data", claims=CLAIM), DATA, ""),
    "claim template over a volume of its name": (template("/data", [EMPTY], CLAIM), DATA, ""),
    "claim template, seen in the copy": (template("/data", claims=CLAIM), DATA, "/data"),
    "claim by its name": (template("/data/", of("persistentVolumeClaim", {"claimName": "c"})), DATA, "/data"),
    "network": (template("/data", of("nfs", {"server": "s", "path": "/"})), DATA, ""),
}
LOST = {
    "emptyDir": (template("/data", [EMPTY]), DATA, "", "emptyDir"),
    "emptyDir in memory": (template("/data", of("emptyDir", {"medium": "Memory"})), DATA, "/data", "emptyDir"),
    "ephemeral": (template("/data", of("ephemeral", {})), DATA, "", "ephemeral volume"),
    "inline csi": (template("/data", of("csi", {"driver": "d"})), DATA, "", "inline CSI"),
    "hostPath": (template("/data", of("hostPath", {"path": "/mnt"})), DATA, "/data", "directory of its node"),
    "unknown kind": (template("/data", of("brandNew", {})), DATA, "", "kind brandNew"),
    "outside the mounts": (template("/var/lib/kafka", claims=CLAIM), "/opt/kafka/data", "", "on no volume"),
    "outside, seen in the copy": (template("/var/lib/kafka", claims=CLAIM), "/opt/kafka/data", "/", "on no volume"),
    "a name that only begins alike": (template("/data", claims=CLAIM), "/data-2/kafka", "", "on no volume"),
    "Kafka's default": (template("/data", claims=CLAIM), "/tmp/kafka-logs", "", "on no volume"),
    "a link out of the claim": (template("/data", claims=CLAIM), DATA, "/", "on no volume"),
    "VOLUME of the image": (
        template("/var/lib/kafka", claims=CLAIM), "/var/lib/kafka/data", "/var/lib/kafka/data", "the image declares it",
    ),
}  # fmt: skip


def at(manifest: dict[str, Any], directory: str, mount_point: str, **accepted: str) -> Decision:
    case = open_gate(Phase.PREFLIGHT)
    dry_start = dry_start_of()
    assert dry_start.report is not None
    copies = [
        replace(
            copy, start=copy.start and replace(copy.start, mount_points={directory: mount_point} if mount_point else {})
        )
        for copy in dry_start.report.copies
    ]
    brokers = broker_set(mounts=mounts_of(manifest, "kafka"))
    preflight = case.spec.preflight.model_validate({"accepted": [accepted] if accepted else []})
    return (
        case.asking(preflight=preflight)
        .observing(
            stateful_sets=(brokers,),
            survey=survey(log_dirs=dict.fromkeys(BROKER_IDS, (LogDir(directory),))),
            dry_start=replace(dry_start, report=replace(dry_start.report, copies=tuple(copies))),
        )
        .decide()
    )


@pytest.mark.parametrize("name", KEPT)
def test_data_that_the_next_pod_finds_is_no_finding(name: str) -> None:
    assert at(*KEPT[name]).status.findings == ()


@pytest.mark.parametrize("name", LOST)
def test_data_that_goes_with_the_pod_blocks_for_each_broker_and_directory(name: str) -> None:
    manifest, directory, mount_point, words = LOST[name]
    decision = at(manifest, directory, mount_point)
    assert [(f.code, f.object) for f in decision.status.findings] == [
        ("DataNotOnClaim", f"broker/{broker} {directory}") for broker in BROKER_IDS
    ]
    assert all(words in f.reason for f in decision.status.findings)
    assert decision.status.phase is Phase.PREFLIGHT
    assert at(manifest, directory, mount_point, code="DataNotOnClaim").status.phase is Phase.PROVISIONING_QUORUM
