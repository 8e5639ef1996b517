"""Running a dry start: nothing starts before the fence is proven and the pod inspected, and every way to fail is a reason, never a pass."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.cert_manager import authority, secret
from tests.support.fakes import Clock, FakeKubernetes, user_stateful_set
from tests.support.observations import spec, spec_document

from kraftbridge.builders.dry_start_pods import (
    API,
    CopyFacts,
    DryStartFacts,
    copy_name,
    copy_pod,
    probe_pod,
)
from kraftbridge.config import Settings
from kraftbridge.copies.admission import API_DIRECTORY, Alike
from kraftbridge.copies.dry_start import copies_in, described, stage_after
from kraftbridge.exceptions import ActionError, ObservationError
from kraftbridge.models.dry_start import (
    UNKNOWN_BROKER,
    ContainerImage,
    CopyKey,
    CopyOutcome,
    DryStartPlan,
    DryStartReport,
    DryStartStage,
    DryStartState,
    FenceProof,
    GivenSetting,
    KafkaStart,
)
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.spec import ConfigStyle, MigrationSpec
from kraftbridge.models.status import DryStartRunStatus, DryStartStatus, MigrationStatus
from kraftbridge.phases.draft import Identity, Migration
from kraftbridge.phases.dry_starting import stands
from kraftbridge.pods.api_answers import NOT_ANSWERED
from kraftbridge.pods.fence import EXIT_REACHED
from kraftbridge.services.act.dry_starts import DryStartActs
from kraftbridge.services.copy_outcomes import outcome_of
from kraftbridge.services.dry_start_inputs import InputReader
from kraftbridge.services.dry_starts import DryStarts
from kraftbridge.services.facts import Facts
from kraftbridge.services.observe import dry_starts as seen

CLOSED = ("10.0.0.1:2181", "10.96.0.1:443")
RESULT = 'kraftbridge-dry-start-result {"version":1,"valid":true,"settings":{"broker.id":{"value":"1"}}}'
STATEFUL_SET = {
    "metadata": {"name": "kafka"},
    "spec": {"template": {"spec": {"containers": [{"name": "kafka", "image": "kafka:1"}], "initContainers": [{"name": "prepare", "image": "i"}]}}},
}  # fmt: skip


def terminated(name: str, code: int, message: str = "") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "message": message}}}


def ended(code: int = 0, prepare: int = 0, users: int = 0, message: str = "") -> dict[str, Any]:
    return {
        "phase": "Succeeded" if code == prepare == users == 0 else "Failed",
        "podIP": "10.1.1.9",
        "initContainerStatuses": [
            terminated("kraftbridge-prepare", prepare, message),
            *([terminated("prepare", users)] if not prepare else []),
        ],
        "containerStatuses": [terminated("kafka", code), terminated("probe", code, message)],
    }


class Pods:
    """The part of an API server and its nodes that a dry start uses: a pod runs once it is let go, and ends as scripted."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[str, str]] = []
        self.end: Callable[[str], dict[str, Any]] = lambda _: ended()
        self.admission: Callable[[dict[str, Any]], None] = lambda _: None
        self.logs: Mapping[str, str] = {"kafka": RESULT}
        self.applied: dict[str, dict[str, Any]] = {}

    def apply(self, obj: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.history.append(("apply", obj["kind"]))
        self.applied[obj["kind"]] = obj
        return obj

    def create(self, obj: dict[str, Any], **_: Any) -> dict[str, Any]:
        made = copy.deepcopy(obj)
        made["metadata"]["uid"] = "u"
        self.admission(made)
        self.objects[obj["metadata"]["name"]] = made
        self.history.append(("create", obj["metadata"]["name"]))
        return made

    def merge_patch(self, _v: str, _k: str, _n: str, name: str, patch: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert patch == {"spec": {"schedulingGates": None}}
        self.history.append(("let go", name))
        self.objects[name]["status"] = self.end(name)
        return self.objects[name]

    def delete(self, _v: str, _k: str, _n: str, name: str, **_: Any) -> None:
        self.history.append(("delete", name))
        self.objects.pop(name, None)

    def list(self, _v: str, _k: str, _n: str, selector: str = "") -> tuple[dict[str, Any], ...]:
        wanted = dict(term.split("=") for term in selector.split(","))
        return tuple(o for o in self.objects.values() if wanted.items() <= o["metadata"]["labels"].items())

    def pod_logs(self, _n: str, _p: str, container: str, *_: Any, **__: Any) -> str | None:
        return self.logs.get(container)


@pytest.fixture
def pods() -> Pods:
    return Pods()


def facts(closed: tuple[str, ...] = CLOSED) -> DryStartFacts:
    return DryStartFacts("shop", "main", "u", "r1", "operator:1", closed)


LIVE: Mapping[str, Any] = {"metadata": {"name": "kafka-1"}, "status": {"podIP": "10.1.1.1"}}


def acts(pods: Pods) -> DryStartActs:
    settings, unused = Settings(operator_image="operator:1", verifier_image="v"), cast("Any", None)
    identity = Identity("shop", "main", "u", 1)
    return DryStartActs(
        cast("Any", pods), settings, unused, unused, Migration(identity, spec(), MigrationStatus()), unused
    )


def run(pods: Pods, closed: tuple[str, ...] = CLOSED, live: Mapping[str, Any] = LIVE) -> CopyOutcome:
    """Run one copy and return how it ended."""
    key = CopyKey("kafka", 1, BrokerMode.KRAFT)
    each = CopyFacts(key, STATEFUL_SET, live, "kafka", 1, "cluster", ("/data",))
    overlay = {"process.roles": "broker"}
    name = copy_name(key, "r1")
    try:
        acts(pods)._make(facts(closed), copy_pod(facts(closed), each), Alike())
    except ActionError as error:
        return CopyOutcome(key, 1, None, problem=str(error), overlay=overlay)
    acts(pods)._let_go(pods.objects[name], None)
    return outcome_of(each, overlay, pods.objects[name], acts(pods)._log_reader(name), 90)


def probe(pods: Pods) -> FenceProof:
    """Run the probe and return what it proves."""
    pod = probe_pod(facts(), CLOSED)
    name = pod["metadata"]["name"]
    pods.objects.clear()
    acts(pods)._make(facts(), pod, Alike())
    assert acts(pods)._let_go(pods.objects[name], None) == ""
    return seen._proof(pods.objects[name], DryStartPlan(closed=CLOSED))


def test_a_copy_that_comes_to_kafkas_start_tells_it(pods: Pods) -> None:
    outcome = run(pods)
    assert outcome.start is not None
    assert outcome.start.settings["broker.id"].value == "1"
    assert outcome.overlay == {"process.roles": "broker"}
    assert outcome.aliases == {
        copy_name(CopyKey("kafka", 1, BrokerMode.KRAFT), "r1"): "kafka-1",
        "10.1.1.9": "10.1.1.1",
    }
    assert [what for what, _ in pods.history] == ["create", "let go"]


def test_the_result_may_come_as_the_termination_message(pods: Pods) -> None:
    pods.logs = {}
    pods.end = lambda _: ended() | {"containerStatuses": [terminated("kafka", 0, RESULT)]}
    assert run(pods).start is not None


def test_a_probe_that_reaches_something_says_what(pods: Pods) -> None:
    assert probe(pods) == FenceProof("r1-probe", ended=True)
    pods.end = lambda _: ended(EXIT_REACHED, message=json.dumps({"reached": ["10.0.0.1:2181"]}))
    assert probe(pods).reached == ("10.0.0.1:2181",)
    pods.end = lambda _: ended(EXIT_REACHED)
    assert probe(pods).reached == CLOSED, "it ended as reached without saying what: everything counts as reached"


@pytest.mark.parametrize("end", [ended(1), ended(137), {"phase": "Pending"}])
def test_a_probe_that_did_not_run_proves_nothing(pods: Pods, end: dict[str, Any]) -> None:
    pods.end = lambda _: end
    proof = probe(pods)
    assert not proof.ended or proof.trouble.startswith("its exit code is")
    assert not proof.reached


def test_a_copy_that_reaches_something_itself_is_never_judged(pods: Pods) -> None:
    pods.end = lambda _: ended(prepare=EXIT_REACHED, message=json.dumps({"reached": ["10.0.0.1:2181"]}))
    outcome = run(pods)
    assert outcome.start is None
    assert "10.0.0.1:2181" in outcome.problem


@pytest.mark.parametrize(
    ("admission", "words"),
    [
        (lambda p: p["spec"]["containers"].append({"name": "istio-proxy"}), "container istio-proxy"),
        (lambda p: p["spec"]["volumes"].append({"name": "vault-secrets"}), "volume vault-secrets"),
        (lambda p: p["spec"].pop("schedulingGates"), "schedulingGates"),
    ],
)
def test_a_pod_that_admission_changed_is_deleted_before_it_runs(
    pods: Pods, admission: Callable[[dict[str, Any]], None], words: str
) -> None:
    pods.admission = admission
    outcome = run(pods)
    assert outcome.start is None
    assert words in outcome.problem
    assert [what for what, _ in pods.history] == ["create", "delete"]


@pytest.mark.parametrize(
    ("end", "logs", "problem", "words"),
    [
        # An image without a JVM.
        (ended(127), {"kafka": "run: line 3: exec: java: not found"}, "no JVM that loaded the agent", "java: not found"),
        # An agent that was not loaded: Kafka ran into the fence.
        (ended(1), {"kafka": "[INFO] starting\nFATAL ZooKeeperClientTimeoutException"}, "never came to Kafka's start. Its log shows no JVM", "Timeout"),
        (ended(0), {"kafka": "done"}, "code 0 and never came to Kafka's start", "done"),
        (ended(97), {"kafka": 'kraftbridge-dry-start {"event":"failed","reason":"salt"}'}, "code 97", ""),
        (ended(0), {"kafka": "kraftbridge-dry-start-result {torn"}, "never came to Kafka's start", ""),
        (ended(0), {"kafka": 'kraftbridge-dry-start-result {"version":2}'}, "never came to Kafka's start", ""),
        (ended(users=1), {"prepare": "error: kubectl: cannot resolve kubernetes.default"}, "init container prepare ended with code 1", "cannot resolve"),
        ({"phase": "Running"}, {"kafka": "waiting for zookeeper"}, "did not end", ""),
    ],
)  # fmt: skip
def test_what_never_comes_to_kafkas_start_is_a_reason_in_the_images_own_words(
    pods: Pods, end: dict[str, Any], logs: Mapping[str, str], problem: str, words: str
) -> None:
    pods.end, pods.logs = (lambda _: end), logs
    outcome = run(pods)
    assert outcome.start is None
    assert problem in outcome.problem
    assert words in outcome.words


LIVE_WITH_TOKEN = {
    **LIVE,
    "kind": "Pod",
    "spec": {"initContainers": [{"name": "prepare", "volumeMounts": [{"name": "t", "mountPath": API_DIRECTORY}]}]},
}


def test_a_stand_in_that_still_serves_is_no_container_that_did_not_end(pods: Pods) -> None:
    end = ended()
    end["initContainerStatuses"].insert(1, {"name": API, "state": {"running": {}}})
    pods.end = lambda _: end
    assert run(pods, live=LIVE_WITH_TOKEN).start is not None
    for code in (0, 137, 143):
        end["initContainerStatuses"][1] = terminated(API, code)
        assert run(pods, live=LIVE_WITH_TOKEN).start is not None, "the kubelet ends it after Kafka's container"


def test_a_stand_in_that_does_not_start_is_named(pods: Pods) -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    prepared = terminated("kraftbridge-prepare", 0)
    never = [prepared, {"name": API, "state": waiting}, {"name": "prepare", "state": {"waiting": {}}}]
    pods.end = lambda _: {"phase": "Pending", "initContainerStatuses": never}
    problem = run(pods, live=LIVE_WITH_TOKEN).problem
    assert problem.startswith("init container prepare did not end")
    assert API in problem


STOPPED = {"phase": "Failed", "containerStatuses": [terminated("kafka", 137)]}
LSTAT = "failed to create containerd task: OCI runtime create failed: lstat /proc/0/ns/ipc: no such file"


def unstarted(reason: str, *, init: bool = False) -> dict[str, Any]:
    """Return the status of a copy of which the runtime did not start a container."""
    end = ended(128, users=128 if init else 0)
    for status in (*end["initContainerStatuses"], *end["containerStatuses"]):
        if status["name"] == ("prepare" if init else "kafka"):
            status["state"]["terminated"] |= {"reason": reason, "message": LSTAT}
    return end


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        (unstarted("StartError"), f"container kafka was not started: StartError: {LSTAT}"),
        (unstarted("ContainerCannotRun"), "container kafka was not started: ContainerCannotRun"),
        (unstarted("ContainerStatusUnknown"), "container kafka was not started"),
        (unstarted("StartError", init=True), "container prepare was not started: StartError"),
        ({**STOPPED, "reason": "Evicted", "message": "low on memory"}, "the copy was stopped: Evicted: low on memory"),
        ({"phase": "Failed", "reason": "OutOfcpu", "message": "no cpu"}, "the copy was stopped: OutOfcpu: no cpu"),
        ({**STOPPED, "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}]}, "the copy was stopped: PreemptionByScheduler: m"),
        ({"phase": "Pending", "containerStatuses": [{"name": "kafka", "state": {"waiting": {"reason": "CreateContainerError", "message": "context deadline exceeded"}}}]}, "did not end (CreateContainerError"),
        ({"phase": "Pending", "containerStatuses": [{"name": "kafka", "state": {"waiting": {"reason": "PodInitializing"}}}]}, "did not end"),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]}, "Unschedulable: 0/1 nodes"),
    ],
)  # fmt: skip
def test_what_kubernetes_kept_from_running_says_nothing_about_an_image(
    pods: Pods, end: dict[str, Any], problem: str
) -> None:
    pods.end, pods.logs = (lambda _: end), {}
    outcome = run(pods)
    assert problem in outcome.problem
    assert (outcome.start, outcome.judged) == (None, False)


@pytest.mark.parametrize("end", [ended(1), ended(137), {**ended(137), "reason": "DeadlineExceeded"}, ended(users=1)])
def test_what_ended_by_itself_is_the_images_doing(pods: Pods, end: dict[str, Any]) -> None:
    pods.end, pods.logs = (lambda _: end), {}
    assert run(pods).judged


@pytest.mark.parametrize(
    ("end", "container"), [(ended(137), "container kafka"), (ended(users=143), "init container prepare")]
)
def test_what_the_kubelet_ended_after_its_deadline_did_not_end(pods: Pods, end: dict[str, Any], container: str) -> None:
    pods.end, pods.logs = (lambda _: {**end, "reason": "DeadlineExceeded"}), {}
    outcome = run(pods)
    assert outcome.problem.startswith(f"{container} did not end")
    assert "code" not in outcome.problem


def test_what_an_init_container_asked_in_vain_is_named(pods: Pods) -> None:
    pods.end = lambda _: ended(users=1)
    asked = f"2026-11-26 WARNING x {NOT_ANSWERED}GET /api/v1/nodes/n1"
    pods.logs = {"prepare": "Error from server (Forbidden)", API: f"{asked}\n{asked}"}
    outcome = run(pods, live=LIVE_WITH_TOKEN)
    words = "asked the API server for GET /api/v1/nodes/n1, which a copy is not answered"
    assert outcome.problem == f"init container prepare ended with code 1 after it {words}"


def test_services_and_pods_are_read_where_an_init_container_may_ask_for_them() -> None:
    kubernetes = FakeKubernetes(Clock())
    kubernetes.create({"kind": "Service", "metadata": {"name": "kafka-0-external", "namespace": "shop"}})
    identity = Identity("shop", "main", "u", 1)
    settings = Settings(operator_image="operator:1", verifier_image="v")
    reader = InputReader(settings, Facts(kubernetes, settings))

    def answers(live: Mapping[str, Any]) -> list[tuple[str, str]]:
        sources = [SimpleNamespace(pods={1: live}, stateful_set=STATEFUL_SET)]
        return [(o["kind"], o["metadata"]["name"]) for o in reader.answers(identity, cast("Any", sources))]

    assert answers(LIVE) == []
    assert answers(LIVE_WITH_TOKEN) == [("Service", "kafka-0-external"), ("Pod", "kafka-1")]


def test_a_start_that_failed_under_the_agent_is_not_blamed_on_its_absence(pods: Pods) -> None:
    pods.end, pods.logs = (
        (lambda _: ended(1)),
        {"kafka": "Picked up JAVA_TOOL_OPTIONS: -javaagent:a\nerror: no such user"},
    )
    assert run(pods).problem.endswith("never came to Kafka's start")


def test_programs_that_were_skipped_are_told_although_the_start_failed(pods: Pods) -> None:
    note = 'kraftbridge-dry-start {"event":"skipped","main":"kafka.admin.ConfigCommand","arguments":"--zookeeper z"}'
    pods.end, pods.logs = (lambda _: ended(1)), {"kafka": f"{note}\nerror: no such user"}
    outcome = run(pods)
    assert [p.main for p in outcome.programs] == ["kafka.admin.ConfigCommand"]
    assert "ConfigCommand" not in outcome.words


def test_without_closed_addresses_the_copy_is_asked_to_prove_nothing(pods: Pods) -> None:
    run(pods, closed=())
    (pod,) = pods.objects.values()
    assert not [a for a in pod["spec"]["initContainers"][0]["command"] if a.startswith("--closed")]


def test_every_other_channel_is_rendered_for_the_first_pod_in_both_modes() -> None:
    kubernetes, settings = FakeKubernetes(Clock()), Settings(operator_image="operator:1", verifier_image="v")
    stateful_set = user_stateful_set()
    pod = stateful_set["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "config", "configMap": {"name": "broker-config"}}]
    kubernetes.create(stateful_set)
    file = {"server.properties": "zookeeper.connect=zk:2181\nnum.io.threads=3\n"}
    metadata = {"name": "broker-config", "namespace": "kafka"}
    kubernetes.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": file})
    reader, identity = InputReader(settings, Facts(kubernetes, settings)), Identity("kafka", "demo", "u", 1)
    copies = [
        (CopyFacts(CopyKey("kafka", ordinal, mode), stateful_set, {}, "kafka", ordinal, "cluster", ("/data",)), {})
        for ordinal in (0, 1)
        for mode in BrokerMode
    ]
    trials = reader.trials(Migration(identity, spec(), MigrationStatus()), copies, choosing=False)
    assert {(each.key.ordinal, each.key.mode) for each, _ in trials} == {
        (0, BrokerMode.MIGRATION),
        (0, BrokerMode.KRAFT),
    }
    by_channel = {(each.key.channel, each.key.mode): (each, overlay) for each, overlay in trials}
    assert len(by_channel) == len(trials) == 4
    place = "{volume: config, key: server.properties}"
    each, overlay = by_channel[f"configStyle: Properties, properties: {place}", BrokerMode.MIGRATION]
    assert "num.io.threads=3" in each.files["server.properties"]
    assert "zookeeper.metadata.migration.enable=true" in each.files["server.properties"]
    assert overlay["zookeeper.metadata.migration.enable"] == "true"
    each, _ = by_channel["configStyle: Env, envPrefix: KAFKA_CFG_", BrokerMode.KRAFT]
    (container,) = each.stateful_set["spec"]["template"]["spec"]["containers"]
    assert {"name": "KAFKA_CFG_PROCESS_ROLES", "value": "broker"} in container["env"]
    assert len({copy_name(each.key, "r") for each, _ in trials}) == 4
    trials = reader.trials(Migration(identity, spec(), MigrationStatus()), copies, choosing=True)
    assert {each.key.ordinal for each, _ in trials} == {0, 1}, "a channel is chosen by what reaches the last pod, too"
    assert len({copy_name(each.key, "r") for each, _ in trials}) == 8


def shows(key: CopyKey, overlay: Mapping[str, str]) -> CopyOutcome:
    """Return a copy that starts with a broker's id alone, and would have these settings of its mode."""
    return CopyOutcome(key, 0, KafkaStart(valid=True, settings={"broker.id": GivenSetting("1")}), overlay=overlay)


LOST, REACHING = {"process.roles": "broker"}, {"broker.id": "1"}


@pytest.mark.parametrize("lost", [False, True])
def test_other_channels_are_tried_only_where_the_chosen_one_is_lost(lost: bool) -> None:
    present, changed = CopyKey("kafka", 0, BrokerMode.ZOOKEEPER), CopyKey("kafka", 0, BrokerMode.MIGRATION)
    trial = replace(changed, channel="another")
    plan = DryStartPlan((present, changed), (trial,))
    assert copies_in(plan, DryStartStage.PROBE, {}, choosing=False) == (present, changed)
    collected = {DryStartStage.COPIES: (shows(present, {}), shows(changed, LOST if lost else REACHING))}
    after = stage_after(plan, DryStartStage.COPIES, collected, choosing=False)
    assert after is (DryStartStage.FIRST_TRIALS if lost else None)
    assert copies_in(plan, DryStartStage.FIRST_TRIALS, collected, choosing=False) == ((trial,) if lost else ())
    collected[DryStartStage.FIRST_TRIALS] = (shows(trial, REACHING),)
    assert stage_after(plan, DryStartStage.FIRST_TRIALS, collected, choosing=False) is None


def test_to_choose_a_channel_every_statefulset_is_tried_and_the_last_pods_only_where_the_first_one_is_reached() -> None:
    present = [CopyKey(name, ordinal, BrokerMode.ZOOKEEPER) for name in "ab" for ordinal in (0, 2)]
    changed = [replace(key, mode=BrokerMode.MIGRATION) for key in present]
    trials = tuple(
        CopyKey(name, ordinal, BrokerMode.MIGRATION, channel)
        for ordinal in (0, 2)
        for name in "ab"
        for channel in ("first", "second")
    )
    plan = DryStartPlan((*present, *changed), trials)
    # The channel of spec.brokers is lost in one StatefulSet, and to choose one all of them are tried.
    copies = [shows(key, {}) for key in present] + [
        shows(k, LOST if k.stateful_set == "a" else REACHING) for k in changed
    ]
    collected = {DryStartStage.COPIES: tuple(copies)}
    firsts = copies_in(plan, DryStartStage.FIRST_TRIALS, collected, choosing=True)
    assert firsts == tuple(key for key in trials if key.ordinal == 0)
    collected[DryStartStage.FIRST_TRIALS] = tuple(
        shows(key, LOST if (key.stateful_set, key.channel) == ("b", "second") else REACHING) for key in firsts
    )
    assert stage_after(plan, DryStartStage.FIRST_TRIALS, collected, choosing=True) is DryStartStage.LAST_TRIALS
    lasts = copies_in(plan, DryStartStage.LAST_TRIALS, collected, choosing=True)
    assert {(k.stateful_set, k.channel) for k in lasts} == {("a", "first"), ("a", "second"), ("b", "first")}
    assert {key.ordinal for key in lasts} == {2}


def test_each_channel_has_a_fingerprint_of_its_own() -> None:
    """The variables of both prefixes set the same settings."""
    kubernetes, settings = FakeKubernetes(Clock()), Settings(operator_image="operator:1", verifier_image="v")
    kubernetes.create(user_stateful_set())
    starts, identity = DryStarts(settings, Facts(kubernetes, settings)), Identity("kafka", "demo", "u", 1)
    found = {
        starts.fingerprint(
            Migration(
                identity,
                spec(brokers=spec().brokers.model_copy(update={"config_style": ConfigStyle.ENV, "env_prefix": prefix})),
                MigrationStatus(),
            ),
        )
        for prefix in ("KAFKA_", "KAFKA_CFG_")
    }
    assert len(found) == 2


def test_the_channels_that_the_templates_may_have_are_read_from_the_cluster() -> None:
    kubernetes, settings = FakeKubernetes(Clock()), Settings(operator_image="operator:1", verifier_image="v")
    stateful_set = user_stateful_set()
    pod = stateful_set["spec"]["template"]["spec"]
    pod["containers"][0]["env"] = []
    pod["volumes"] = [{"name": "config", "configMap": {"name": "broker-config"}}]
    kubernetes.create(stateful_set)
    metadata = {"name": "broker-config", "namespace": "kafka"}
    file = {"server.properties": "zookeeper.connect=zk:2181\n", "log4j.properties": "log4j.rootLogger=INFO"}
    kubernetes.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": file})
    starts, identity = DryStarts(settings, Facts(kubernetes, settings)), Identity("kafka", "demo", "u", 1)
    assert [described(b) for b in starts.channels(identity, spec())] == [
        "configStyle: Properties, properties: {volume: config, key: server.properties}",
        "configStyle: Env, envPrefix: KAFKA_",
        "configStyle: Env, envPrefix: KAFKA_CFG_",
    ]
    del kubernetes.objects["StatefulSet", "kafka", "kafka"]
    with pytest.raises(ObservationError, match="StatefulSet kafka/kafka: it does not exist"):
        starts.channels(identity, spec())


def test_an_images_colours_are_not_quoted(pods: Pods) -> None:
    pods.logs = {"kafka": "\x1b[38;5;6mkafka \x1b[0m==> error: \x1b[38;5;2mno such user\x1b[0m"}
    pods.end = lambda _: ended(1)
    assert run(pods).words == "kafka ==> error: no such user"


def test_a_dry_start_does_not_run_again_because_preflight_passed_and_the_cluster_id_is_in_status() -> None:
    kubernetes, settings = FakeKubernetes(Clock()), Settings(operator_image="operator:1", verifier_image="v")
    kubernetes.create(user_stateful_set())
    starts, identity = DryStarts(settings, Facts(kubernetes, settings)), Identity("kafka", "demo", "u", 1)
    before = starts.fingerprint(Migration(identity, spec(), MigrationStatus()))
    assert (
        starts.fingerprint(Migration(identity, spec(), MigrationStatus(cluster_id="5L6g3nShT-eMCtK--X86sw"))) == before
    )
    live = kubernetes.objects["StatefulSet", "kafka", "kafka"]
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "another:1"
    assert starts.fingerprint(Migration(identity, spec(), MigrationStatus())) != before


def test_a_dry_start_runs_again_when_the_secret_of_the_controllers_listener_changes() -> None:
    kubernetes, settings = FakeKubernetes(Clock()), Settings(operator_image="operator:1", verifier_image="v")
    kubernetes.create(user_stateful_set())
    document = spec_document()
    document["controllers"]["listener"] = {"securityProtocol": "SSL", "secretName": "listener"}
    wanted = MigrationSpec.model_validate(document)
    starts, identity = DryStarts(settings, Facts(kubernetes, settings)), Identity("kafka", "demo", "u", 1)
    seen = [starts.fingerprint(Migration(identity, wanted, MigrationStatus()))]
    for issuer in (authority(), authority()):
        data = {name: base64.b64encode(text.encode()).decode() for name, text in secret(issuer).items()}
        kubernetes.objects["Secret", "kafka", "listener"] = {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "listener", "namespace": "kafka"}, "data": data,
        }  # fmt: skip
        assert starts._reader._listener(Migration(identity, wanted, MigrationStatus()))[1] == ""
        seen.append(starts.fingerprint(Migration(identity, wanted, MigrationStatus())))
    assert len(set(seen)) == 3
    del kubernetes.objects["Secret", "kafka", "listener"]["data"]["tls.crt"]
    assert (
        "has no certificate of the listener"
        in starts._reader._listener(Migration(identity, wanted, MigrationStatus()))[1]
    )


def _fingerprints(*changes: Callable[[dict[str, Any], dict[str, Any]], None]) -> list[str]:
    """Return the fingerprint before and after each change of the StatefulSet and its pod."""
    kubernetes, settings = FakeKubernetes(Clock()), Settings(operator_image="operator:1", verifier_image="v")
    kubernetes.create(user_stateful_set(replicas=1))
    live = kubernetes.objects["StatefulSet", "kafka", "kafka"]
    live["metadata"]["uid"] = "set"
    pod: dict[str, Any] = {
        "metadata": {"name": "kafka-0", "namespace": "kafka", "uid": "p", "labels": {"app": "kafka"}, "ownerReferences": [{"uid": "set"}]},
        "spec": live["spec"]["template"]["spec"],
        "status": {
            "initContainerStatuses": [{"name": "prepare", "imageID": "sha256:a"}],
            "containerStatuses": [{"name": "kafka", "imageID": "sha256:b"}],
        },
    }  # fmt: skip
    kubernetes.objects["Pod", "kafka", "kafka-0"] = pod
    starts, identity = DryStarts(settings, Facts(kubernetes, settings)), Identity("kafka", "demo", "u", 1)
    seen = [starts.fingerprint(Migration(identity, spec(), MigrationStatus()))]
    for change in changes:
        change(live["spec"]["template"], pod["status"])
        seen.append(starts.fingerprint(Migration(identity, spec(), MigrationStatus())))
    return seen


@pytest.mark.parametrize(
    "change",
    [
        lambda template, _: template["metadata"].update(annotations={"checksum/config": "1"}),
        lambda template, _: template["metadata"]["labels"].update({"sidecar.istio.io/inject": "true"}),
        lambda _, status: status["initContainerStatuses"][0].update(imageID="sha256:c"),
        lambda _, status: status["containerStatuses"][0].update(imageID="sha256:c"),
    ],
    ids=["checksum annotation", "label of an injector", "digest of an init image", "digest of the broker's image"],
)
def test_a_dry_start_runs_again_when_metadata_of_the_template_or_a_digest_changes(
    change: Callable[[dict[str, Any], dict[str, Any]], None],
) -> None:
    before, again, changed = _fingerprints(lambda *_: None, change)
    assert before == again != changed


def test_what_a_copy_started_is_told_beside_what_the_pod_runs(pods: Pods) -> None:
    def end(_: str) -> dict[str, Any]:
        status = ended()
        status["initContainerStatuses"][1]["imageID"] = "docker-pullable://i@sha256:2"
        status["containerStatuses"][0]["imageID"] = "sha256:3"
        return status

    pods.end = end
    live = {
        "metadata": {"name": "kafka-1"},
        "spec": {
            "nodeName": "n1",
            "initContainers": [{"name": "prepare", "image": "i"}],
            "containers": [{"name": "kafka", "image": "kafka:0"}, {"name": "sidecar", "image": "s"}],
        },
        "status": {"initContainerStatuses": [{"name": "prepare", "imageID": "i@sha256:1"}]},
    }
    images = {i.container: i for i in run(pods, live=live).images}
    assert images == {
        "prepare": ContainerImage("prepare", "i", "i@sha256:1", "i", "docker-pullable://i@sha256:2", "n1"),
        "kafka": ContainerImage("kafka", "kafka:0", "", "kafka:1", "sha256:3", "n1"),
    }
    pods.logs = {}
    failed = run(pods, live=live)
    assert failed.start is None
    assert {i.container: i for i in failed.images} == images, "an image that does not start Kafka is told, too"


def test_a_container_that_only_the_template_has_differs_from_no_image(pods: Pods) -> None:
    live = {
        "metadata": {"name": "kafka-1"},
        "spec": {"containers": [{"name": "kafka", "image": "kafka:1"}]},
        "status": {"containerStatuses": [{"name": "kafka", "imageID": "sha256:3"}]},
    }
    assert {i.container for i in run(pods, live=live).images} == {"kafka"}


NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def test_a_report_of_an_hour_ago_does_not_stand_for_another_generation() -> None:
    ended = DryStartStatus(run_id="r1", digest="same", generation=1, finished_at=NOW)
    assert stands(ended, 2, NOW + timedelta(seconds=3500))
    assert stands(ended, 1, NOW + timedelta(seconds=9000))
    assert not stands(ended, 2, NOW + timedelta(seconds=9000))


def test_a_dry_start_that_made_no_copies_is_repeated_after_a_while() -> None:
    ended = DryStartStatus(run_id="r1", digest="same", problem="the API server is silent", finished_at=NOW)
    assert stands(ended, 0, NOW + timedelta(seconds=30))
    assert not stands(ended, 0, NOW + timedelta(seconds=61))
    what_copies_say = ended.model_copy(update={"problem": ""})
    assert stands(what_copies_say, 0, NOW + timedelta(seconds=61))
    assert not stands(None, 0, NOW)


@pytest.mark.parametrize("known", [True, False])
def test_without_ids_of_brokers_one_copy_of_each_pod_shows_its_own_from_a_blank_disk(known: bool) -> None:
    """Directories with an id in them would show that id back."""
    kubernetes, settings = FakeKubernetes(Clock()), Settings(operator_image="operator:1", verifier_image="v")
    kubernetes.create(user_stateful_set())
    kubernetes.settle()
    starts, identity = DryStarts(settings, Facts(kubernetes, settings)), Identity("kafka", "demo", "u", 1)
    sources = starts._reader.read(Migration(identity, spec(), MigrationStatus())).sources
    pods = [f"kafka-{ordinal}" for ordinal in sources[0].pods]
    running = DryStartRunStatus(
        run_id="r1", digest="d", launched_at=NOW, generation=1, cluster_id="c", stage_at=NOW,
        broker_ids={name: 7 + i for i, name in enumerate(pods)} if known else {},
    )  # fmt: skip
    clients = cast("Any", SimpleNamespace(brokers=SimpleNamespace(broker_settings=dict)))

    copies = [
        each
        for each, _ in starts._reader.copies(Migration(identity, spec(), MigrationStatus()), clients, running, sources)
    ]

    present = [each for each in copies if each.key.mode is BrokerMode.ZOOKEEPER]
    assert [each.key.pod for each in present] == pods
    assert (len(copies) > len(present)) is known
    assert [each.broker_id for each in present] == (
        [7 + i for i in range(len(pods))] if known else [UNKNOWN_BROKER] * len(pods)
    )
    assert all(bool(each.log_dirs) is known for each in copies)
    prepared = str(copy_pod(facts(), copies[0])["spec"]["initContainers"][0]["command"])
    assert known or "--meta-properties" not in prepared


def test_a_report_of_copies_that_show_ids_judges_no_broker() -> None:
    def report(broker_id: int) -> DryStartState:
        copies = (CopyOutcome(CopyKey("kafka", 0, BrokerMode.ZOOKEEPER), broker_id, None),)
        return DryStartState("same", report=DryStartReport("same", copies))

    assert report(UNKNOWN_BROKER).current is None
    assert report(UNKNOWN_BROKER).latest is not None
    assert report(0).current is not None
    assert DryStartState("same", report=DryStartReport("same", problem="no copies")).current is not None
