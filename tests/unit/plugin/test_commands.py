"""What each command shows and changes."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.fakes import FakeKubernetes
from typer.testing import Result

from kraftbridge.exceptions import ConflictError
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.rehearsal import PAGE_KEY
from kraftbridge.models.report import Profile, Verdict, VerificationReport
from kraftbridge.plugin.session import PluginError

from .conftest import NOW

Run = Callable[..., Result]
FINDING = {
    "code": "ControllerListenerPlaintext", "severity": "Blocking", "object": "controllers", "reason": "anybody may talk to it", "fix": "use SSL",
}  # fmt: skip


def stamp(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).isoformat()


def status(phase: str, **more: Any) -> dict[str, Any]:
    verification = {
        "runId": "demo-v3", "profile": "dual-write", "gate": phase, "purpose": "entry", "generation": 1, "launchedAt": stamp(90),
        "finishedAt": stamp(60), "verdict": "Consistent", "report": "demo-v3-verification",
        "counts": {"topic": {"compared": 41, "differing": 0}},
    }  # fmt: skip
    conditions = [
        {
            "type": "RollbackPossible",
            "status": "True",
            "reason": "ZooKeeperMirrorsTheLog",
            "message": "mirrored",
            "lastTransitionTime": stamp(5),
        }
    ]
    return {
        "phase": phase, "message": "waits for spec.target KRaft", "brokers": {"total": 3, "inMode": 2, "mode": "KRaft", "summary": "2/3"},
        "controllers": {"name": "demo-kraft", "nodeIds": [3000, 3001, 3002]},
        "quorum": {"leaderId": 3001, "leaderEpoch": 4, "maxLagRecords": "7"},
        "verifications": [verification], "conditions": conditions,
        "history": [{"phase": "Preflight", "enteredAt": stamp(600), "leftAt": stamp(100)}, {"phase": phase, "enteredAt": stamp(100)}],
    } | more  # fmt: skip


def test_status_shows_phase_brokers_quorum_wait_and_verdict(run: Run, migrate: Any) -> None:
    migrate(status("RollingBrokers"))
    shown = run("status").output
    assert "◉ RollingBrokers" in shown
    assert "● DualWrite" in shown
    assert "○ Completed" in shown
    for part in (
        "2 of 3 in mode KRaft",
        "leader 3001 in epoch 4",
        "lag 7 records",
        "waits for spec.target KRaft",
        "41 entities, 0 differ",
    ):
        assert part in shown


def test_status_names_every_broker_that_is_down_by_the_operator(run: Run, migrate: Any) -> None:
    operations = [
        {"kind": "RestartBroker", "nodeId": i, "pod": f"kafka-{i}", "podUid": f"uid-{i}", "startedAt": stamp(20)}
        for i in (4, 5)
    ]
    batch = {"brokers": [4, 5], "others": operations[:1], "stoppedAt": stamp(10)}
    migrate(status("RollingBrokers", operation=operations[1], batch=batch))
    shown = run("status").output
    assert "kafka-5, for" in shown
    assert "down together with kafka-4" in shown


@pytest.mark.parametrize("phase", ["Preflight", "RollingBack", "RolledBack", "Completed"])
def test_status_draws_every_kind_of_way(run: Run, migrate: Any, phase: str) -> None:
    migrate({"phase": phase})
    assert f"◉ {phase}" in run("status").output


def test_status_of_a_migration_that_was_never_looked_at(run: Run, migrate: Any) -> None:
    migrate()
    shown = run("status").output
    assert "not started" in shown
    assert "none yet" in shown


def test_the_only_migration_needs_no_name_two_do(run: Run, migrate: Any) -> None:
    assert isinstance(run("status").exception, PluginError)
    migrate(name="demo")
    assert run("status").exit_code == 0
    migrate(name="other")
    assert "demo, other" in str(run("status").exception)
    assert run("status", "other").exit_code == 0
    assert "no KafkaMigration third" in str(run("status", "third").exception)


def test_findings_say_what_to_do_and_fail_while_one_blocks(run: Run, migrate: Any) -> None:
    migrate({"findings": [FINDING]})
    answer = run("findings")
    assert answer.exit_code == 1
    assert "use SSL" in answer.output
    assert "ControllerListenerPlaintext" in answer.output


def test_what_kafka_4_refuses_is_shown_and_blocks_nothing(run: Run, migrate: Any) -> None:
    told = {**FINDING, "code": "Kafka4RefusesValue", "severity": "Warning", "object": "topic small"}
    ready = {
        "type": "ReadyForKafka4",
        "status": "False",
        "reason": "SettingsRefused",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    migrate({"phase": "AwaitingFinalization", "kafka4": {"findings": [told], "total": 1}, "conditions": [ready]})
    answer = run("findings")
    assert "Kafka4RefusesValue" in answer.output
    assert answer.exit_code == 0
    shown = run("status").output
    assert "not ready" in shown
    assert "1 finding(s): kubectl kraftbridge findings demo -n kafka" in " ".join(shown.split())


def test_findings_that_block_come_first_with_the_command_that_accepts_them(run: Run, migrate: Any) -> None:
    others = [
        {**FINDING, "code": code, "severity": severity} for code, severity in (("A", "Information"), ("B", "Warning"))
    ]
    refused = {**FINDING, "code": "AlreadyKRaft", "object": "StatefulSet/kafka"}
    migrate({"findings": [*others, FINDING, refused]})
    shown = run("findings").output
    places = [shown.index(f"│ {severity}") for severity in ("Blocking", "Warning", "Information")]
    assert places == sorted(places)
    assert "kubectl kraftbridge accept ControllerListenerPlaintext controllers --migration demo -n kafka\n" in shown
    assert "accept AlreadyKRaft" not in shown, "it cannot be accepted"


def test_status_says_each_thing_once(run: Run, migrate: Any) -> None:
    stalled = {
        "type": "Stalled", "status": "True", "reason": "BlockingFindings", "message": "one finding blocks", "lastTransitionTime": stamp(5),
    }  # fmt: skip
    conditions = [*status("Preflight")["conditions"], stalled]
    migrate({"phase": "Preflight", "message": "one finding blocks", "findings": [FINDING], "conditions": conditions})
    shown = run("status").output
    assert shown.count("one finding blocks") == 1
    assert "BlockingFindings" in shown
    assert "possible  mirrored" in shown
    assert "0 of 0" not in shown, "no broker was counted yet"
    assert "kubectl kraftbridge findings demo -n kafka" in shown


def test_an_accepted_finding_blocks_no_more(run: Run, migrate: Any) -> None:
    migrate({"findings": [{**FINDING, "accepted": True}]})
    assert run("findings").exit_code == 0


def test_accept_adds_to_what_is_accepted(run: Run, migrate: Any, spec_of: Any) -> None:
    earlier = {"code": "SuperUserAnonymous", "object": "controllers"}
    migrate({"findings": [FINDING]}, preflight={"accepted": [earlier]})
    assert run("accept", FINDING["code"], "controllers", "--yes").exit_code == 0
    assert spec_of()["preflight"]["accepted"] == [earlier, {"code": FINDING["code"], "object": "controllers"}]
    assert "already" in run("accept", FINDING["code"], "controllers", "--yes").output


def test_what_was_accepted_before_is_not_asked_again(run: Run, migrate: Any) -> None:
    migrate(
        {"findings": [{**FINDING, "accepted": True}]},
        preflight={"accepted": [{"code": FINDING["code"], "object": "controllers"}]},
    )
    answer = run("accept", FINDING["code"], "controllers", answer="")
    assert (answer.exit_code, answer.output) == (0, "it was accepted already\n")


def test_what_was_not_found_is_not_accepted(run: Run, migrate: Any, spec_of: Any) -> None:
    migrate({"findings": [FINDING]})
    assert "has no finding Misspelt" in str(run("accept", "Misspelt", "--yes").exception)
    assert "preflight" not in spec_of()


def test_accept_asks(run: Run, migrate: Any, spec_of: Any) -> None:
    migrate({"findings": [FINDING]})
    assert run("accept", FINDING["code"], answer="n\n").exit_code == 1
    assert "preflight" not in spec_of()


def test_pause_and_resume(run: Run, migrate: Any, spec_of: Any) -> None:
    migrate()
    run("pause")
    assert spec_of()["paused"] is True
    run("resume")
    assert spec_of()["paused"] is False


def test_finalize_shows_the_verdict_and_asks(run: Run, migrate: Any, spec_of: Any) -> None:
    migrate(status("AwaitingFinalization"), target="KRaftBrokers")
    refused = run("finalize", answer="n\n")
    assert refused.exit_code == 1
    assert "cannot be undone" in refused.output
    assert "Consistent" in refused.output
    assert spec_of()["target"] == "KRaftBrokers"
    assert run("finalize", answer="y\n").exit_code == 0
    assert spec_of()["target"] == "KRaft"


def test_finalize_is_about_the_migration_that_was_shown(
    run: Run, migrate: Any, spec_of: Any, kubernetes: FakeKubernetes
) -> None:
    migrate(status("AwaitingFinalization"), target="KRaftBrokers")
    others = iter([None])

    def somebody_else(verb: str, kind: str, name: str) -> None:
        if verb == "merge_patch" and next(others, "done") is None:
            kubernetes.merge_patch("", "KafkaMigration", "kafka", "demo", {"metadata": {"labels": {"touched": "yes"}}})

    kubernetes.before_call = somebody_else
    assert isinstance(run("finalize", "--yes").exception, ConflictError)
    assert spec_of()["target"] == "KRaftBrokers"


@pytest.mark.parametrize("command", ["finalize", "rollback"])
@pytest.mark.parametrize("phase", ["Finalizing", "Completed"])
def test_what_is_finalized_is_not_steered(run: Run, migrate: Any, spec_of: Any, command: str, phase: str) -> None:
    migrate(status(phase), target="KRaft")
    assert "cannot be undone" in str(run(command, "--yes").exception)
    assert spec_of()["target"] == "KRaft"


def test_rollback_asks_and_says_when_the_way_back_is_closed(run: Run, migrate: Any, spec_of: Any) -> None:
    closed = [
        {
            "type": "RollbackPossible",
            "status": "False",
            "reason": "ZooKeeperNotMirrored",
            "message": "behind",
            "lastTransitionTime": stamp(5),
        }
    ]
    migrate(status("DualWrite", conditions=closed), target="KRaftBrokers")
    answer = run("rollback", answer="y\n")
    assert "RollbackPossible is not True (False: behind)" in answer.output
    assert spec_of()["target"] == "ZooKeeper"


def packed_report() -> str:
    report = VerificationReport(
        run_id="demo-v3",
        profile=Profile.DUAL_WRITE,
        verdict=Verdict.CONSISTENT,
        reason="nothing differs",
        started_at=NOW,
        finished_at=NOW,
    )
    return base64.b64encode(gzip.compress(report.to_json().encode())).decode()


def with_report(kubernetes: FakeKubernetes, packed: str) -> None:
    kubernetes.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "demo-v3-verification", "namespace": "kafka"},
            "data": {"report.json.gz.b64": packed},
        }
    )


def test_a_report_is_written_as_page_or_as_json(
    run: Run, migrate: Any, kubernetes: FakeKubernetes, tmp_path: Path
) -> None:
    migrate(status("AwaitingFinalization"))
    with_report(kubernetes, packed_report())
    assert run("report", "-o", str(tmp_path / "page.html")).exit_code == 0
    assert "<html" in (tmp_path / "page.html").read_text()
    assert run("report", "-o", str(tmp_path / "report.json"), "--run", "demo-v3").exit_code == 0
    parsed = VerificationReport.model_validate_json((tmp_path / "report.json").read_text())
    assert parsed.reason == "nothing differs"


def test_a_report_that_is_gone_or_torn_is_told(run: Run, migrate: Any, kubernetes: FakeKubernetes) -> None:
    migrate(status("AwaitingFinalization"))
    assert "does not exist or has no report" in str(run("report").exception)
    assert "runs with a report: demo-v3" in str(run("report", "--run", "demo-v9").exception)
    with_report(kubernetes, packed_report()[:40])
    assert "cannot be unpacked" in str(run("report").exception)


def test_plan_is_a_diff_and_changes_nothing(run: Run, migrate: Any, kubernetes: FakeKubernetes) -> None:
    migrate(target="KRaftBrokers")
    before = dict(kubernetes.objects)
    shown = run("plan").output
    assert "--- StatefulSet kafka: yours" in shown
    assert "+++ StatefulSet kafka: Migration" in shown
    assert "+++ StatefulSet kafka: KRaft" in shown
    assert "+    - name: KAFKA_ZOOKEEPER_METADATA_MIGRATION_ENABLE" in shown
    assert "-    - name: KAFKA_ZOOKEEPER_METADATA_MIGRATION_ENABLE" in shown, "the flag goes away again in KRaft mode"
    assert "+    - name: KAFKA_PROCESS_ROLES" in shown
    assert "OnDelete" in shown
    assert "<cluster id, read from ZooKeeper in preflight>" in shown
    assert kubernetes.objects == before
    kubernetes.objects["KafkaMigration", "kafka", "demo"]["status"] = {"clusterId": "uuuuuuuuuuuuuuuuuuuuuA"}
    assert "value: uuuuuuuuuuuuuuuuuuuuuA" in run("plan").output


def test_plan_shows_the_image_and_protocol_to_which_the_brokers_are_brought(
    run: Run, migrate: Any, kubernetes: FakeKubernetes
) -> None:
    brokers = {
        "statefulSets": [{"name": "kafka"}],
        "bootstrapServers": "kafka-0.kafka:9092",
        "configStyle": "Env",
        "upgrade": {"image": "registry/kafka:3.9.2"},
    }
    migrate(target="BridgeRelease", brokers=brokers)
    shown = run("plan").output
    assert "+++ StatefulSet kafka: Upgraded" in shown
    assert "+    image: registry/kafka:3.9.2" in shown
    assert "<the lowest that runs, found in preflight>" in shown
    assert "spec.rollback.giveUpFormerImage" in shown
    assert "If the lowest is below 2.8, they restart a second time" in shown
    found = {"brokerUpgrade": {"needed": True, "protocol": "2.4-IV1"}}
    kubernetes.objects["KafkaMigration", "kafka", "demo"]["status"] = found
    twice = run("plan").output
    assert "--- StatefulSet kafka: Upgraded" in twice
    assert "+++ StatefulSet kafka: Lifted" in twice
    assert "restart twice on ZooKeeper" in twice
    del kubernetes.objects["KafkaMigration", "kafka", "demo"]
    migrate(target="KRaftBrokers", brokers={name: value for name, value in brokers.items() if name != "upgrade"})
    assert "Upgraded" not in run("plan").output


def test_plan_and_status_name_the_channel_and_what_proved_it(
    run: Run, migrate: Any, kubernetes: FakeKubernetes
) -> None:
    brokers = {"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka-0.kafka:9092"}
    migrate(target="KRaftBrokers", brokers=brokers)
    first = run("plan").output.splitlines()[0]
    assert first == "Channel: configStyle: Env, envPrefix: KAFKA_ (not proven: the dry start of preflight decides)"
    found = {
        "configStyle": "Env",
        "envPrefix": "KAFKA_CFG_",
        "provenAt": "2026-11-23T12:00:00Z",
        "provenBy": "copies of kafka-0",
    }
    kubernetes.objects["KafkaMigration", "kafka", "demo"]["status"] = {"channel": found}
    words = "configStyle: Env, envPrefix: KAFKA_CFG_ (proven at 2026-11-23 12:00:00 UTC by copies of kafka-0)"
    assert run("plan").output.splitlines()[0] == f"Channel: {words}"
    assert "KAFKA_CFG_PROCESS_ROLES" in run("plan").output
    assert "KAFKA_CFG_ (proven at" in run("status", "--once").output
    del kubernetes.objects["KafkaMigration", "kafka", "demo"]
    migrate(target="KRaftBrokers", brokers={**brokers, "configStyle": "Env"})
    assert "as spec.brokers says; no dry start has proven it" in run("plan").output.splitlines()[0]


def test_plan_names_the_rolling_restarts_that_preflight_has_planned(
    run: Run, migrate: Any, kubernetes: FakeKubernetes
) -> None:
    migrate(target="KRaftBrokers", brokers={"statefulSets": [{"name": "kafka"}], "bootstrapServers": "kafka:9092"})
    assert "Rolling restarts: not known until preflight" in run("plan").output.splitlines()[1]
    roll = {"mode": "KRaft", "restarts": 60, "steps": 15, "largest": 5, "minutes": 26, "limit": "why"}
    planned = {"rolls": [roll], "secondsPerRestart": 60}
    kubernetes.objects["KafkaMigration", "kafka", "demo"]["status"] = {"rollPlan": planned}
    lines = run("plan").output.splitlines()
    words = "60 restarts, in 15 steps, up to 5 brokers down together, about 26 min; why"
    assert lines[1] == f"Rolling restart to mode KRaft: {words}"
    assert lines[2].startswith("All: 60 restarts in 15 steps, about 26 min")


def test_plan_is_what_the_operator_applies(run: Run, migrate: Any, kubernetes: FakeKubernetes) -> None:
    migrate(
        target="KRaftBrokers", brokers={"statefulSets": [{"name": "nowhere"}], "bootstrapServers": "kafka-0.kafka:9092"}
    )
    assert "StatefulSet kafka/nowhere does not exist" in str(run("plan").exception)


def test_every_kind_of_entity_fits_into_the_verdict_line(run: Run, migrate: Any) -> None:
    found = status("DualWrite")
    found["verifications"][0]["counts"] = {kind.value: {"compared": 1, "differing": 1} for kind in EntityKind}
    migrate(found)
    assert f"{len(EntityKind)} entities" in run("status").output


REQUIRED = [
    {"name": "KAFKA_PROCESS_ROLES", "value": "broker", "entry": False},
    {"name": "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "value": "CONTROLLER:SSL", "entry": True},
]
FILES = {
    "values-bitnami-kafka.yaml": "extraEnvVars:\n- name: KAFKA_PROCESS_ROLES\n  value: broker\n",
    "controllers.yaml": "kind: StatefulSet\n",
}


@pytest.fixture
def completed(kubernetes: FakeKubernetes, migrate: Any) -> Callable[..., None]:
    """Return a function that makes a completed migration with its final manifest."""

    def make(reason: str, **hand_over: Any) -> None:
        known = {
            "guarded": True,
            "statefulSets": [{"name": "kafka", "container": "kafka", "variables": REQUIRED}],
        } | hand_over
        handed_over = {
            "type": "HandedOver", "status": "False", "reason": reason, "message": "m", "lastTransitionTime": stamp(5),
        }  # fmt: skip
        migrate(
            status("Completed", finalManifest="demo-final-manifest-1", handOver=known, conditions=[handed_over]),
        )
        kubernetes.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "demo-final-manifest-1", "namespace": "kafka"},
                "data": FILES,
            }
        )

    return make


def test_hand_over_shows_guard_needs_and_values(run: Run, completed: Any) -> None:
    completed("Guarded")
    shown = run("hand-over")
    assert shown.exit_code == 0, shown.exception
    assert "guard: stands" in shown.output
    assert "StatefulSet kafka, container kafka: needs KAFKA_PROCESS_ROLES=broker" in shown.output
    assert "needs KAFKA_LISTENER_SECURITY_PROTOCOL_MAP with the entry CONTROLLER:SSL" in shown.output
    assert FILES["values-bitnami-kafka.yaml"] in shown.output
    assert FILES["controllers.yaml"] not in shown.output
    assert "missing" not in shown.output


def test_hand_over_fails_while_a_template_lacks_a_setting(run: Run, completed: Any) -> None:
    completed("TemplateNotKRaft", missing=["StatefulSet kafka: KAFKA_PROCESS_ROLES=broker"])
    shown = run("hand-over")
    assert shown.exit_code == 1
    assert "missing: StatefulSet kafka: KAFKA_PROCESS_ROLES=broker" in shown.output
    assert "guard: stands" not in shown.output


@pytest.mark.parametrize(
    ("reason", "more", "line"),
    [
        ("NotGuarded", {}, "guard: no admission policy rejects"),
        ("Released", {"endedAt": stamp(60), "guarded": False}, "guard: ended at 2026-03-01 11:59:00 UTC (Released)"),
        (
            "Cleaned",
            {"endedAt": stamp(90), "cleanedAt": stamp(60), "guarded": False},
            "controllers: without the operator's image since 2026-03-01 11:59:00 UTC",
        ),
    ],
)
def test_hand_over_says_when_nothing_guards(
    run: Run, completed: Any, reason: str, more: dict[str, Any], line: str
) -> None:
    completed(reason, **more)
    shown = run("hand-over")
    assert shown.exit_code == 0, shown.exception
    assert line in shown.output


def test_hand_over_writes_every_file(run: Run, completed: Any, tmp_path: Path) -> None:
    completed("Guarded")
    assert run("hand-over", "--output", str(tmp_path / "final")).exit_code == 0
    assert {path.name: path.read_text() for path in (tmp_path / "final").iterdir()} == FILES


def test_there_is_nothing_to_hand_over_before_the_end(run: Run, migrate: Any) -> None:
    migrate(status("Finalizing"))
    answer = run("hand-over")
    assert isinstance(answer.exception, PluginError)
    assert "demo is in Finalizing" in str(answer.exception)


def test_a_deleted_final_manifest_is_named(run: Run, completed: Any, kubernetes: FakeKubernetes) -> None:
    completed("Guarded")
    kubernetes.delete("v1", "ConfigMap", "kafka", "demo-final-manifest-1")
    assert "kafka/demo-final-manifest-1" in str(run("hand-over").exception)


REHEARSAL = {
    "count": 1, "runId": "demo-rehearsal-1", "verdict": "Fails", "reason": "the controller exited with code 1", "finishedAt": stamp(60),
    "copySeconds": 1.4, "secondsWithoutController": 2.9, "heapNeededBytes": 128 << 20, "report": "demo-rehearsal-1",
    "mends": [{"znode": "/config/brokers/abc", "problem": "no broker id", "command": "delete /config/brokers/abc"}],
}  # fmt: skip


def test_the_last_rehearsal_is_shown_with_what_repairs_it(
    run: Run, migrate: Any, kubernetes: FakeKubernetes, tmp_path: Path
) -> None:
    migrate(status("Preflight", rehearsal=REHEARSAL))
    page = base64.b64encode(gzip.compress(b"<html>")).decode()
    report = {
        "kind": "ConfigMap",
        "metadata": {"name": "demo-rehearsal-1", "namespace": "kafka"},
        "binaryData": {PAGE_KEY: page},
    }
    kubernetes.create(report)
    shown = run("rehearse", "--last", "-o", str(tmp_path / "page.html"))
    assert shown.exit_code == 1, "only Works is 0"
    for words in ("Fails", "the controller exited with code 1", "2.9 s", "128 MiB", "delete /config/brokers/abc"):
        assert words in shown.output
    assert (tmp_path / "page.html").read_text() == "<html>"
    missing = run("rehearse", "--last", "-o", str(tmp_path / "result.json"))
    assert isinstance(missing.exception, PluginError)
    assert "Fails: the controller exited" in run("status", "--once").output
    assert "annotations" not in kubernetes.objects["KafkaMigration", "kafka", "demo"]["metadata"]


def test_a_rehearsal_with_a_broker_that_fails_is_no_success(run: Run, migrate: Any, kubernetes: FakeKubernetes) -> None:
    works = REHEARSAL | {"verdict": "Works", "reason": "all 5 entities", "mends": []}
    broker = {"brokers": [0, 2], "verdict": "Works", "reason": "it starts"}
    migrate(status("Preflight", rehearsal=works | {"brokers": [broker]}))
    assert run("rehearse", "--last").exit_code == 0
    failing = broker | {"verdict": "Fails", "reason": "not in force: [num.io.threads]"}
    kubernetes.objects["KafkaMigration", "kafka", "demo"]["status"]["rehearsal"]["brokers"] = [failing]
    shown = run("rehearse", "--last")
    assert shown.exit_code == 1
    assert "broker 0, 2 in KRaft mode" in shown.output
    assert "Fails: not in force: [num.io.threads]" in shown.output


@pytest.mark.parametrize(
    ("phase", "rehearsal", "words"),
    [
        ("TakingOver", {}, "only before the first broker restarts"),
        ("Preflight", {"enabled": False}, "spec.rehearsal.enabled: false"),
    ],
)
def test_where_no_rehearsal_would_run_none_is_asked_for(
    phase: str, rehearsal: dict[str, Any], words: str, run: Run, migrate: Any, kubernetes: FakeKubernetes
) -> None:
    migrate(status(phase), rehearsal=rehearsal)
    answer = run("rehearse")
    assert isinstance(answer.exception, PluginError)
    assert words in str(answer.exception)
    assert "annotations" not in kubernetes.objects["KafkaMigration", "kafka", "demo"]["metadata"]
