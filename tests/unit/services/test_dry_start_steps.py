"""The steps of a dry start, driven from the status: whoever dies between any two of them, another one goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.fakes import READ_VERBS, Killed
from tests.unit.services.conftest import SETTINGS, Operator, new_operator

from kraftbridge.builders.broker_overlays import setting_of
from kraftbridge.builders.dry_start_pods import ROLE
from kraftbridge.builders.image_pulls import NO_PROGRAM
from kraftbridge.constants import LABEL_ROLE
from kraftbridge.exceptions import ActionError, ObservationError
from kraftbridge.models.dry_start import DryStartStage
from kraftbridge.models.runs import DRY_START_PARALLEL
from kraftbridge.models.spec import ControllersSpec
from kraftbridge.models.status import DryStartStatus
from kraftbridge.pods.fence import EXIT_REACHED
from kraftbridge.services import dry_start_inputs
from kraftbridge.services.observe import dry_starts as seen

BROKERS_IMAGE = "kafka:3.9"
CONTROLLERS_IMAGE = ControllersSpec().image
OPERATORS_IMAGE = SETTINGS.operator_image
NO_SUCH_PROGRAM = {"terminated": {"exitCode": 128, "reason": "StartError"}}
COPIES = 7
"""Of three brokers: each in its present mode, the first and the last in the two others."""


def pull_nodes(pod: dict[str, Any]) -> list[str]:
    """Return the nodes that a pod may go to, by its affinity."""
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields = [each for term in affinity["nodeSelectorTerms"] for each in term.get("matchFields", [])]
    assert all((each["key"], each["operator"]) == ("metadata.name", "In") for each in fields)
    return [node for each in fields for node in each["values"]]


@dataclass
class Kubelet:
    """Runs the pods of dry starts that nothing holds back, and writes down in which order they start."""

    operator: Operator
    started: list[str] = field(default_factory=list)
    reached: tuple[str, ...] = ()
    """What the probe reaches."""
    runs: Callable[[str], bool] = lambda _name: True
    """Whether a pod comes to its end."""
    runtime_starts: Callable[[str], bool] = lambda _name: True
    """Whether the container runtime starts a pod's container."""
    most: int = 0
    """Most copies that ran at once."""
    pulled: list[tuple[str, str]] = field(default_factory=list)
    """Node and image of each container that only gets its image."""
    pull_state: Callable[[str, str], dict[str, Any]] = lambda _node, _image: NO_SUCH_PROGRAM
    """What becomes of a container with an image that its node was asked to get."""
    has_place: Callable[[str], bool] = lambda _node: True
    """Whether the scheduler places a pod on the node that it asks for."""

    def settle(self) -> None:
        """Let every pod that may run come to its end."""
        kubernetes = self.operator.kubernetes
        running = 0
        for (kind, _, name), pod in list(kubernetes.objects.items()):
            if kind != "Pod":
                continue
            status = pod.setdefault("status", {})
            images = [{"name": c["name"], "imageID": "sha256:1"} for c in pod["spec"]["containers"]]
            status.setdefault("containerStatuses", images)
            is_ours = pod["metadata"]["labels"].get(LABEL_ROLE) == ROLE
            if is_ours and "-pull-" in name and "phase" not in status:
                self._pull(pod, status)
            elif is_ours and not pod["spec"].get("schedulingGates") and "phase" not in status:
                running += not name.endswith("-probe")
                self._run(name, pod, status)
        self.most = max(self.most, running)

    def _pull(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Let a node get the images of a pod: no container of it ever starts."""
        (node,) = set(pull_nodes(pod))
        if not self.has_place(node):
            status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
            status["containerStatuses"] = []
            return
        statuses = []
        for container in pod["spec"]["containers"]:
            assert container["command"] == [NO_PROGRAM]
            state = self.pull_state(node, container["image"])
            if (node, container["image"]) not in self.pulled:
                self.pulled.append((node, container["image"]))
            statuses.append({"name": container["name"], "state": state})
        status["containerStatuses"] = statuses
        if all("terminated" in each["state"] for each in statuses):
            status["phase"] = "Failed"

    def _run(self, name: str, pod: dict[str, Any], status: dict[str, Any]) -> None:
        if name not in self.started:
            self.started.append(name)
        if not self.runs(name):
            return
        (container,) = pod["spec"]["containers"]
        is_probe = container["name"] == "probe"
        code = EXIT_REACHED if is_probe and self.reached else 0
        message = json.dumps({"reached": self.reached}) if code else ""
        ended = {"state": {"terminated": {"exitCode": code, "message": message}}}
        if not self.runtime_starts(name):
            code = 128
            ended = {"state": {"terminated": {"exitCode": code, "reason": "StartError", "message": "lstat /proc/0"}}}
        status["phase"] = "Failed" if code else "Succeeded"
        status["containerStatuses"] = [{"name": container["name"], "imageID": "sha256:1", **ended}]
        status["initContainerStatuses"] = [{"name": c["name"], **ended} for c in pod["spec"].get("initContainers", [])]
        given = {setting_of(e["name"], "KAFKA_"): e.get("value", "") for e in container.get("env", [])}
        settings = {n: {"value": v} for n, v in given.items() if n is not None}
        result = json.dumps({"version": 1, "valid": True, "settings": settings})
        self.operator.kubernetes.logs[name] = f"kraftbridge-dry-start-result {result}"


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the operator reach ZooKeeper and the brokers from outside the fence."""
    monkeypatch.setattr(dry_start_inputs, "addresses_of", lambda hosts, *_: (hosts.partition("/")[0],))
    monkeypatch.setattr(dry_start_inputs, "reachable", list)


@pytest.fixture
def cluster(operator: Operator) -> Iterator[Callable[[], Kubelet]]:
    """Return a maker of clusters, all on one clock."""
    made: list[Operator] = []

    def make() -> Kubelet:
        made.append(new_operator(operator.clock, real_dry_starts=True))
        return Kubelet(made[-1])

    yield make
    for each in made:
        each.reconciler.close()


def dry_start(kubelet: Kubelet) -> DryStartStatus | None:
    return kubelet.operator.status().dry_start


def step(kubelet: Kubelet, seconds: float = 2.0) -> None:
    kubelet.operator.clock.advance(seconds)
    kubelet.operator.kubernetes.settle()
    kubelet.settle()
    try:
        kubelet.operator.reconciler.step("kafka", "demo")
    except Killed:
        kubelet.operator.kubernetes.before_call = kubelet.operator.kubernetes.after_call = lambda *_: None
        kubelet.operator.restart()


def walk(kubelet: Kubelet, steps: int = 60, seconds: float = 2.0) -> DryStartStatus:
    """Take steps until a dry start has ended, and nothing of it is left but its report."""
    for _ in range(steps):
        step(kubelet, seconds)
        record = dry_start(kubelet)
        if record is not None and record.finished_at is not None and not kubelet.operator.status().retired_runs:
            return record
    raise AssertionError(f"no dry start ended: {record}")


@contextmanager
def dying(kubelet: Kubelet, write: int, *, after: bool) -> Iterator[None]:
    """Let the operator die before or after its n-th write."""
    writes = 0

    def call(verb: str, *_: str) -> None:
        nonlocal writes
        writes += verb not in READ_VERBS
        if writes > write:
            raise Killed

    kubernetes = kubelet.operator.kubernetes
    if after:
        kubernetes.after_call = call
    else:
        kubernetes.before_call = call
    yield


def pods(kubelet: Kubelet) -> list[str]:
    return [
        name
        for (kind, _, name), o in kubelet.operator.kubernetes.objects.items()
        if kind == "Pod" and o["metadata"]["labels"].get(LABEL_ROLE) == ROLE
    ]


def writes_of_a_dry_start(kubelet: Kubelet) -> int:
    walk(kubelet)
    return sum(verb not in READ_VERBS for verb, _, _ in kubelet.operator.kubernetes.calls)


def assert_ended_well(kubelet: Kubelet, record: DryStartStatus) -> None:
    assert (record.count, record.problem, record.reached, record.running) == (1, "", (), None)
    report = seen.last_report(kubelet.operator.kubernetes, "kafka", record)
    assert report is not None
    assert len(report.copies) == COPIES
    assert all(copy.start is not None for copy in report.copies), [copy.problem for copy in report.copies]
    assert kubelet.started[0].endswith("-probe"), "no copy starts before the probe"
    assert len(kubelet.started) == 1 + COPIES
    assert kubelet.most == DRY_START_PARALLEL
    assert {node for node, _ in kubelet.pulled} == {"node-1"}
    assert {image for _, image in kubelet.pulled} == {BROKERS_IMAGE, CONTROLLERS_IMAGE, OPERATORS_IMAGE}
    assert report.not_pulled == ()
    assert pods(kubelet) == []
    secret = kubelet.operator.kubernetes.objects["Secret", "kafka", "demo-dry-start"]
    assert secret["data"]["salt"] == ""


def test_a_dry_start_goes_from_step_to_step(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    assert_ended_well(kubelet, walk(kubelet))


def test_whoever_dies_between_any_two_writes_another_one_goes_on(cluster: Callable[[], Kubelet]) -> None:
    writes = writes_of_a_dry_start(cluster())
    assert writes > 2 * COPIES
    for write in range(writes):
        for after in (False, True):
            kubelet = cluster()
            with dying(kubelet, write, after=after):
                record = walk(kubelet)
            assert_ended_well(kubelet, record)
            kubelet.operator.reconciler.close()


def test_a_new_process_in_every_step_ends_the_same_dry_start(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    for _ in range(60):
        step(kubelet)
        record = dry_start(kubelet)
        if record is not None and record.finished_at is not None and not kubelet.operator.status().retired_runs:
            break
        kubelet.operator.restart()
    assert record is not None
    assert_ended_well(kubelet, record)


def test_no_copy_starts_where_the_probe_reaches_something(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.reached = ("10.0.0.1:2181",)
    record = walk(kubelet)
    assert (record.reached, record.problem) == (("10.0.0.1:2181",), "")
    assert [name for name in kubelet.started if not name.endswith("-probe")] == []
    assert pods(kubelet) == []
    step(kubelet)
    assert "DryStartUnfenced" in {f.code for f in kubelet.operator.status().findings}


def test_no_copy_starts_where_the_probe_does_not_end(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.runs = lambda name: not name.endswith("-probe")
    record = walk(kubelet)
    assert "which proves that copies reach nothing: it did not end (after 90 s at most)" in record.problem
    assert [name for name in kubelet.started if not name.endswith("-probe")] == []
    assert pods(kubelet) == []


def test_no_pod_is_made_where_the_operator_reaches_nothing_outside_the_fence(
    cluster: Callable[[], Kubelet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that fails inside proves nothing then."""
    monkeypatch.setattr(dry_start_inputs, "reachable", lambda _: [])
    kubelet = cluster()
    record = walk(kubelet)
    assert "so a probe that fails would prove nothing" in record.problem
    assert kubelet.started == []
    assert not [c for c in kubelet.operator.kubernetes.calls if c[:2] == ("create", "Pod")]


@pytest.mark.parametrize("air_gapped", [False, True])
def test_the_fence_closes_what_is_reached_beyond_the_cluster(
    cluster: Callable[[], Kubelet], monkeypatch: pytest.MonkeyPatch, air_gapped: bool
) -> None:
    """What nobody reaches outside of the fence proves nothing inside, and stops nothing."""
    beyond = {"169.254.169.254:80", "1.1.1.1:443"}
    monkeypatch.setattr(
        dry_start_inputs, "reachable", lambda tried: [a for a in tried if not air_gapped or a not in beyond]
    )
    kubelet = cluster()
    record = walk(kubelet)
    assert record.problem == ""
    plan = seen.plan_of(kubelet.operator.kubernetes.get("v1", "ConfigMap", "kafka", record.run_id))
    assert plan is not None
    assert beyond & set(plan.closed) == (set() if air_gapped else beyond)


def test_a_copy_that_does_not_end_is_a_reason_and_the_others_are_judged(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.runs = lambda name: not name.endswith("-kraft-2")
    record = walk(kubelet, steps=120)
    assert record.problem == ""
    report = seen.last_report(kubelet.operator.kubernetes, "kafka", record)
    assert report is not None
    (stuck,) = [copy for copy in report.copies if copy.start is None]
    assert stuck.key.pod == "kafka-2"
    assert pods(kubelet) == []


def test_copies_that_hang_end_the_dry_start_and_the_others_are_told_as_never_started(
    cluster: Callable[[], Kubelet],
) -> None:
    kubelet = cluster()
    kubelet.runs = lambda name: name.endswith("-probe")
    record = walk(kubelet, steps=120)
    assert record.problem == ""
    assert len(kubelet.started) == 1 + DRY_START_PARALLEL
    report = seen.last_report(kubelet.operator.kubernetes, "kafka", record)
    assert report is not None
    hung, waited = report.copies[:DRY_START_PARALLEL], report.copies[DRY_START_PARALLEL:]
    assert all("did not end" in copy.problem for copy in hung), hung
    assert {copy.problem for copy in waited} == {
        "it was not started: 4 copies run at once, and those before it did not end"
    }
    assert not any(copy.judged for copy in waited)
    assert pods(kubelet) == []
    step(kubelet)
    told = [f.reason for f in kubelet.operator.status().findings if f.code.startswith("DryStart")]
    assert "the copy of pod kafka-0 in ZooKeeper mode: " in told[0]
    assert "did not end" in told[0]


def test_a_pod_that_nobody_decided_on_stays_behind_its_gate(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.runs = lambda name: name.endswith("-probe")
    while len(kubelet.started) <= DRY_START_PARALLEL:
        step(kubelet)
    for _ in range(5):
        step(kubelet)
    objects = kubelet.operator.kubernetes.objects
    copies = [objects["Pod", "kafka", name] for name in pods(kubelet) if not name.endswith("-probe")]
    assert len([pod for pod in copies if pod["spec"].get("schedulingGates")]) == COPIES - DRY_START_PARALLEL
    assert "0 of 7 copies have ended" in kubelet.operator.status().message


@pytest.mark.parametrize("mode", ["zookeeper", "migration", "kraft"])
def test_a_copy_that_the_runtime_did_not_start_is_tried_again_and_blames_no_image(
    cluster: Callable[[], Kubelet], mode: str
) -> None:
    kubelet = cluster()
    kubelet.runtime_starts = lambda name: not name.endswith(f"-{mode}-0")
    record = walk(kubelet, steps=120)
    step(kubelet)
    told = {f.code: f.reason for f in kubelet.operator.status().findings}
    assert "DryStartFailed" not in told
    assert "was not started: StartError: lstat /proc/0" in told["DryStartImpossible"]
    kubelet.runtime_starts = lambda _name: True
    for _ in range(60):
        step(kubelet)
        record = dry_start(kubelet) or record
        if record.count == 2 and record.running is None:
            break
    step(kubelet)
    assert (record.count, record.problem) == (2, "")
    assert not {"DryStartFailed", "DryStartImpossible"} & {f.code for f in kubelet.operator.status().findings}


def test_a_template_that_changes_meanwhile_ends_the_dry_start_and_begins_another(
    cluster: Callable[[], Kubelet],
) -> None:
    kubelet = cluster()
    kubelet.runs = lambda name: name.endswith("-probe")
    for _ in range(20):
        step(kubelet)
        record = dry_start(kubelet)
        if record is not None and record.running is not None and record.running.stage is DryStartStage.COPIES:
            break
    template = kubelet.operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]
    template["spec"]["containers"][0]["env"].append({"name": "KAFKA_NUM_IO_THREADS", "value": "9"})
    kubelet.operator.restart()  # the fingerprint is kept for some seconds
    kubelet.runs = lambda _name: True
    record = walk(kubelet)
    assert record.problem == "the pods' template or what it refers to changed meanwhile"
    for _ in range(20):
        step(kubelet)
        record = dry_start(kubelet)
        if record is not None and record.running is None and record.count == 2:
            break
    assert record is not None
    assert (record.count, record.problem) == (2, "")
    assert pods(kubelet) == []


def test_a_dry_start_that_no_phase_waits_for_is_removed(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.runs = lambda _name: False
    while not pods(kubelet):
        step(kubelet)
    document = kubelet.operator.migration()
    document["status"]["phase"] = "RolledBack"
    document["spec"]["target"] = "ZooKeeper"  # with another one it goes on to preflight, and begins the next dry start
    record = walk(kubelet)
    assert (record.problem, record.digest) == ("no phase waits for it any more", "")
    assert pods(kubelet) == []


def test_a_copy_that_somebody_changes_while_it_waits_never_starts(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.runs = lambda _name: False
    while not kubelet.started:
        step(kubelet)
    (changed, *_) = [name for name in pods(kubelet) if name.endswith("-zookeeper-1")]
    kubelet.operator.kubernetes.objects["Pod", "kafka", changed]["spec"]["containers"][0]["image"] = "another:1"
    kubelet.runs = lambda _name: True
    record = walk(kubelet)
    assert changed not in kubelet.started
    report = seen.last_report(kubelet.operator.kubernetes, "kafka", record)
    assert report is not None
    (refused,) = [copy for copy in report.copies if copy.start is None]
    assert refused.key.pod == "kafka-1"
    assert "somebody changed the pod while it waited" in refused.problem


# ------------------------------------------------------------------------------------------------------ images


def add_node(kubelet: Kubelet, name: str, **spec: Any) -> None:
    kubernetes = kubelet.operator.kubernetes
    first = kubernetes.objects["Node", None, "node-1"]
    kubernetes.objects["Node", None, name] = {**first, "metadata": {"name": name, "labels": {}}, "spec": spec}


def admit(kubelet: Kubelet) -> None:
    """Give pods of the brokers' service account, which has pull secrets, those that name none (admission)."""
    for (kind, _, _), obj in kubelet.operator.kubernetes.objects.items():
        if kind == "Pod" and obj["spec"].get("serviceAccountName") == "kafka":
            obj["spec"].setdefault("imagePullSecrets", [{"name": "of-the-account"}])


def not_pulled(kubelet: Kubelet) -> list[Any]:
    return [f for f in kubelet.operator.status().findings if f.code == "ImageNotPullable"]


REFUSED = {"waiting": {"reason": "ErrImagePull", "message": 'failed to resolve reference "kafka:3.9": not found'}}


def test_a_node_that_cannot_get_an_image_is_named_before_any_broker_restarts(cluster: Callable[[], Kubelet]) -> None:
    """The brokers run, from what their nodes keep; the registry has the image no more."""
    kubelet = cluster()
    add_node(kubelet, "node-2")
    add_node(kubelet, "node-3")
    kubelet.pull_state = lambda node, image: REFUSED if node != "node-1" and image == BROKERS_IMAGE else NO_SUCH_PROGRAM
    record = walk(kubelet)
    assert record.problem == ""
    step(kubelet)
    (found,) = not_pulled(kubelet)
    assert (found.object, found.severity) == ("StatefulSet/kafka", "Blocking")
    assert "nodes node-2, node-3" in found.reason
    assert f"{BROKERS_IMAGE}: ErrImagePull: failed to resolve reference" in found.reason
    assert pods(kubelet) == []
    # Nothing in Kubernetes tells that the image is there again.
    kubelet.pull_state = lambda _node, _image: NO_SUCH_PROGRAM
    for _ in range(60):
        step(kubelet)
        if not not_pulled(kubelet):
            break
    assert not_pulled(kubelet) == []


def test_pods_that_pull_go_where_those_of_the_user_may_go_and_pull_as_they_do(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubernetes = kubelet.operator.kubernetes
    template = kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]["spec"]
    kubernetes.objects["Node", None, "node-1"]["metadata"]["labels"] = {"pool": "kafka"}
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    nowhere: dict[str, Any] = {}  # a term without a requirement matches no node
    template |= {
        "serviceAccountName": "kafka",
        "nodeSelector": {"pool": "kafka"},
        "tolerations": [{"key": "kafka", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ssd, named, nowhere]}
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
        },
    }
    template["containers"][0]["imagePullPolicy"] = "Always"
    made: dict[str, dict[str, Any]] = {}
    settle = kubelet.settle

    def note() -> None:
        admit(kubelet)
        made.update({n: o for (k, _, n), o in kubernetes.objects.items() if k == "Pod" and "-pull-" in n})
        settle()

    kubelet.settle = note  # type: ignore[method-assign]
    walk(kubelet)
    (of_brokers,) = (pod for pod in made.values() if pod["spec"].get("nodeSelector"))
    (of_controllers,) = (pod for pod in made.values() if not pod["spec"].get("nodeSelector"))
    assert "podAntiAffinity" not in of_brokers["spec"]["affinity"]
    terms = of_brokers["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    of_ssd, of_named, of_nowhere = terms["nodeSelectorTerms"]
    assert of_ssd == {**ssd, **named}, "one of the terms must hold, so each names the node"
    assert of_named == {"matchFields": named["matchFields"] * 2}
    assert of_nowhere == {}
    assert of_brokers["spec"]["tolerations"] == template["tolerations"]
    assert of_brokers["spec"]["imagePullSecrets"] == [{"name": "of-the-account"}]
    policies = {c["image"]: c.get("imagePullPolicy") for c in of_brokers["spec"]["containers"]}
    assert policies == {BROKERS_IMAGE: "Always"}, "the operator's image is in no broker's pod"
    assert CONTROLLERS_IMAGE in {c["image"] for c in of_controllers["spec"]["containers"]}


def pulls_made(kubelet: Kubelet) -> dict[str, dict[str, Any]]:
    """Return the pods that pull images in a dry start, by the image that only one owner's pods have."""
    made: dict[str, dict[str, Any]] = {}
    settle = kubelet.settle

    def note() -> None:
        for (kind, _, name), pod in kubelet.operator.kubernetes.objects.items():
            if kind == "Pod" and "-pull-" in name:
                images = {container["image"] for container in pod["spec"]["containers"]}
                made[BROKERS_IMAGE if BROKERS_IMAGE in images else CONTROLLERS_IMAGE] = pod
        settle()

    kubelet.settle = note  # type: ignore[method-assign]
    walk(kubelet)
    return made


def test_brokers_images_are_pulled_with_the_secrets_of_their_next_pods_alone(cluster: Callable[[], Kubelet]) -> None:
    """Those of the operator's pods, or of another service account, open registries that stay closed to a broker."""
    kubelet = cluster()
    kubernetes = kubelet.operator.kubernetes
    migration = kubernetes.objects["KafkaMigration", "kafka", "demo"]
    migration["spec"]["pods"] = {"imagePullSecrets": [{"name": "of-the-operators-pods"}]}
    kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]["spec"]["serviceAccountName"] = "kafka"
    made = pulls_made(kubelet)
    of_brokers = made[BROKERS_IMAGE]["spec"]
    assert of_brokers["serviceAccountName"] == "kafka", "admission adds the secrets that the account has now"
    assert "imagePullSecrets" not in of_brokers
    assert of_brokers["automountServiceAccountToken"] is False
    assert made[CONTROLLERS_IMAGE]["spec"]["imagePullSecrets"] == [{"name": "of-the-operators-pods"}]


def test_a_template_that_names_other_secrets_than_its_running_pods_have_decides(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    template = kubelet.operator.kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]
    template["spec"]["imagePullSecrets"] = [{"name": "of-the-next-pods"}]
    settle = kubelet.settle

    def with_former_secrets() -> None:
        for (kind, _, name), pod in kubelet.operator.kubernetes.objects.items():
            if kind == "Pod" and name.removeprefix("kafka-").isdigit():
                pod["spec"]["imagePullSecrets"] = [{"name": "of-the-running-pods"}]
        settle()

    kubelet.settle = with_former_secrets  # type: ignore[method-assign]
    assert pulls_made(kubelet)[BROKERS_IMAGE]["spec"]["imagePullSecrets"] == [{"name": "of-the-next-pods"}]


def test_nodes_that_take_no_pod_of_these_are_not_asked(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    add_node(kubelet, "cordoned", unschedulable=True)
    add_node(kubelet, "tainted")
    kubelet.has_place = lambda node: node != "tainted"
    began = kubelet.operator.clock.now
    walk(kubelet)
    step(kubelet)
    assert {node for node, _ in kubelet.pulled} == {"node-1"}
    assert not_pulled(kubelet) == []
    assert (kubelet.operator.clock.now - began).total_seconds() < 60, "the scheduler's word is not waited out"


def test_an_image_that_does_not_come_in_time_is_one_that_does_not_come(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.pull_state = lambda *_: {"waiting": {"reason": "ContainerCreating"}}
    began = kubelet.operator.clock.now
    walk(kubelet, steps=300)
    step(kubelet)
    assert (kubelet.operator.clock.now - began).total_seconds() > 300
    assert {f.object for f in not_pulled(kubelet)} == {"StatefulSet/kafka", "controllers"}
    assert "the node did not get it within 300 s" in not_pulled(kubelet)[0].reason


def test_nodes_that_cannot_be_listed_keep_the_gate_closed_until_that_is_accepted(
    cluster: Callable[[], Kubelet],
) -> None:
    kubelet = cluster()

    def deny(verb: str, kind: str, _name: str) -> None:
        if (verb, kind) == ("list", "Node"):
            raise ObservationError("nodes", "403")

    kubelet.operator.kubernetes.before_call = deny
    walk(kubelet)
    step(kubelet)
    assert kubelet.pulled == []
    assert ("ImagesNotTried", "Blocking") in {(f.code, f.severity) for f in kubelet.operator.status().findings}
    # Nothing in Kubernetes tells that the operator may list them now, or that the API server had a bad moment.
    kubelet.operator.kubernetes.before_call = lambda *_: None
    for _ in range(60):
        step(kubelet)
        if kubelet.pulled:
            break
    assert {node for node, _ in kubelet.pulled} == {"node-1"}


def test_an_owner_whose_pods_no_node_takes_now_has_shown_nothing(cluster: Callable[[], Kubelet]) -> None:
    """The only nodes for the controllers are full or tainted for an hour."""
    kubelet = cluster()
    kubelet.has_place = lambda _node: False
    walk(kubelet)
    step(kubelet)
    assert kubelet.pulled == []
    found = {f.object: f for f in kubelet.operator.status().findings if f.code == "ImagesNotTried"}
    assert {name: f.severity for name, f in found.items()} == {
        "StatefulSet/kafka": "Blocking",
        "controllers": "Blocking",
    }
    assert "no node takes a pod of controllers now" in found["controllers"].reason


def test_without_a_node_that_takes_pods_nothing_is_known_of_images(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()
    kubelet.operator.kubernetes.objects["Node", None, "node-1"]["spec"] = {"unschedulable": True}
    walk(kubelet)
    step(kubelet)
    (found,) = (f for f in kubelet.operator.status().findings if f.code == "ImagesNotTried")
    assert "no node that is Ready and not cordoned has the labels" in found.reason
    assert "StatefulSet/kafka, controllers" in found.reason


def test_controllers_that_may_go_elsewhere_are_asked_for_there(cluster: Callable[[], Kubelet]) -> None:
    """What nodes of one pool have shown says nothing of another pool, or of other pull secrets."""
    kubelet = cluster()
    walk(kubelet)
    before = kubelet.operator.status().dry_start
    spec = kubelet.operator.kubernetes.objects["KafkaMigration", "kafka", "demo"]["spec"]
    spec["controllers"]["nodeSelector"] = {"pool": "controllers"}
    for _ in range(3):
        step(kubelet)
    record = dry_start(kubelet)
    assert before is not None
    assert record is not None
    assert record.running is not None or record.count > before.count


def test_a_cluster_of_many_nodes_is_asked_where_the_pods_may_go(cluster: Callable[[], Kubelet]) -> None:
    """Of 300 nodes three are for Kafka: nothing is left out, and no pod is made that no node would ever take."""
    kubelet = cluster()
    kubernetes = kubelet.operator.kubernetes
    for number in range(297):
        add_node(kubelet, f"app-{number:03}")
    for number in range(3):
        add_node(kubelet, f"kafka-{number}")
        kubernetes.objects["Node", None, f"kafka-{number}"]["metadata"]["labels"] = {"pool": "kafka"}
    kubernetes.objects["StatefulSet", "kafka", "kafka"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "kafka"}
    kubernetes.objects["KafkaMigration", "kafka", "demo"]["spec"]["controllers"]["nodeSelector"] = {"pool": "kafka"}
    walk(kubelet)
    step(kubelet)
    assert {node for node, _ in kubelet.pulled} == {"kafka-0", "kafka-1", "kafka-2"}
    assert [f for f in kubelet.operator.status().findings if f.code == "ImagesNotTried"] == []


def test_a_pod_that_may_not_be_made_is_named(cluster: Callable[[], Kubelet]) -> None:
    kubelet = cluster()

    def deny(verb: str, kind: str, name: str) -> None:
        if (verb, kind) == ("create", "Pod") and "-pull-" in name:
            raise ActionError(f"pod {name}: exceeded quota")

    kubelet.operator.kubernetes.before_call = deny
    walk(kubelet)
    step(kubelet)
    assert "exceeded quota" in not_pulled(kubelet)[0].reason
