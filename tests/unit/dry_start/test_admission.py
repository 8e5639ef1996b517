"""What admission did to a pod is compared whole: everything that was not sent is named, but for a few things that are explained."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.builders.test_dry_start import EACH, FACTS

from kraftbridge.builders.dry_start_pods import copy_pod, probe_pod
from kraftbridge.copies.admission import Alike, additions, alike

Change = Callable[[dict[str, Any]], Any]
TEMPLATE = EACH.stateful_set["spec"]["template"]
IMAGE = "reg.example/kafka:1"
HTTP = {"httpGet": {"path": "/", "port": 80}}


def made(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as an API server keeps it, with every default that it is known to add."""
    kept = copy.deepcopy(pod)
    spec = kept["spec"]
    for each in (*spec.get("initContainers", []), *spec["containers"]):
        each |= {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
        each.setdefault("imagePullPolicy", "IfNotPresent")
        if "startupProbe" in each:
            each["startupProbe"] |= {"timeoutSeconds": 1, "successThreshold": 1}
        for entry in each.get("env", []):
            if entry.get("value") == "":
                del entry["value"]
    for volume in spec.get("volumes", []):
        for kind in ("configMap", "secret", "projected"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 0o644)
    no_execute = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    spec |= {"schedulerName": "default-scheduler", "priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    spec |= {"serviceAccountName": "default", "serviceAccount": "default"}
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("securityContext", {})
    spec["tolerations"] = [
        *spec.get("tolerations", []),
        {"key": "node.kubernetes.io/not-ready", **no_execute},
        {"key": "node.kubernetes.io/unreachable", **no_execute},
    ]
    kept["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "now", "managedFields": [{}]}
    return kept


@pytest.fixture(params=["copy", "probe"])
def pod(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return a pod that is sent."""
    return copy_pod(FACTS, EACH) if request.param == "copy" else probe_pod(FACTS, FACTS.closed)


def test_what_kubernetes_itself_adds_is_no_addition(pod: dict[str, Any]) -> None:
    assert additions(pod, made(pod)) == ()


def test_a_quantity_is_compared_by_its_amount() -> None:
    pod = copy_pod(FACTS, EACH)
    pod["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": 0.5, "memory": "1024Mi"},
        "requests": {"cpu": "1e-1"},
    }
    pod["spec"]["volumes"][0]["emptyDir"] = {"sizeLimit": "1024Ki"}
    kept = made(pod)
    kept["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "100m"},
    }
    kept["spec"]["volumes"][0]["emptyDir"] = {"sizeLimit": "1Mi"}
    assert additions(pod, kept) == ()
    kept["spec"]["containers"][0]["resources"]["limits"]["memory"] = "2Gi"
    assert additions(pod, kept) == ("resources.limits.memory of container kafka",)


def first(spec: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = spec["containers"][0]
    return container


def volume(spec: dict[str, Any], name: str) -> dict[str, Any]:
    return next(v for v in spec["volumes"] if v["name"] == name)


def host_path(spec: dict[str, Any]) -> None:
    found = volume(spec, "host")
    del found["emptyDir"]
    found["hostPath"] = {"path": "/var/lib/kafka"}


CHANGES: list[tuple[Change, str]] = [
    (host_path, "hostPath.path of volume host"),
    (lambda s: volume(s, "host").update(emptyDir={"medium": "Memory"}), "emptyDir.medium of volume host"),
    (lambda s: volume(s, "config")["configMap"].update(name="other"), "configMap.name of volume config"),
    (lambda s: volume(s, "secret")["secret"].update(defaultMode=0o600), "secret.defaultMode of volume secret"),
    (lambda s: s["volumes"].append({"name": "kube-api-access-x", "projected": {}}), "volume kube-api-access-x"),
    (lambda s: s["volumes"].pop(0), "the loss of volume kraftbridge-dry-start"),
    (lambda s: s.update(serviceAccountName="admin", serviceAccount="admin"), "serviceAccountName"),
    (lambda s: s.update(automountServiceAccountToken=True), "automountServiceAccountToken"),
    (lambda s: s.pop("automountServiceAccountToken"), "the loss of automountServiceAccountToken"),
    (lambda s: s.update(hostNetwork=True), "hostNetwork"),
    (lambda s: s.update(hostPID=True), "hostPID"),
    (lambda s: s.update(hostIPC=True), "hostIPC"),
    (lambda s: s.update(hostUsers=True), "hostUsers"),
    (lambda s: s.update(shareProcessNamespace=True), "shareProcessNamespace"),
    (lambda s: s.update(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["zookeeper"]}]), "hostAliases"),
    (lambda s: s.update(runtimeClassName="gvisor"), "runtimeClassName"),
    (lambda s: s.update(nodeName="n1"), "nodeName"),
    (lambda s: s.update(schedulerName="other"), "schedulerName"),
    (lambda s: s.update(affinity={"nodeAffinity": {"x": 1}}), "affinity.nodeAffinity.x"),
    (lambda s: s.update(dnsPolicy="ClusterFirst"), "dnsPolicy"),
    (lambda s: s["dnsConfig"].update(nameservers=["10.96.0.10"]), "dnsConfig.nameservers"),
    (lambda s: s["dnsConfig"].update(searches=["svc"]), "dnsConfig.searches"),
    (lambda s: s.update(restartPolicy="Always"), "restartPolicy"),
    (lambda s: s.pop("activeDeadlineSeconds"), "the loss of activeDeadlineSeconds"),
    (lambda s: s.update(terminationGracePeriodSeconds=600), "terminationGracePeriodSeconds"),
    (lambda s: s.update(priority=2_000_000_000), "priority"),
    (lambda s: s["tolerations"].append({"operator": "Exists"}), "tolerations"),
    (lambda s: s["tolerations"].pop(0), "the loss of tolerations"),
    (lambda s: s["nodeSelector"].update(disk="ssd"), "nodeSelector.disk"),
    (lambda s: s.update(resourceClaims=[{"name": "gpu"}]), "resourceClaims gpu"),
    (lambda s: s.update(readinessGates=[{"conditionType": "x"}]), "readinessGates"),
    (lambda s: s.update(ephemeralContainers=[{"name": "debug", "image": "x"}]), "container debug"),
    (lambda s: s["securityContext"].update(fsGroup=0), "securityContext.fsGroup"),
    (lambda s: s["securityContext"].update(sysctls=[{"name": "a", "value": "1"}]), "securityContext.sysctls"),
    (lambda s: s["containers"].append({"name": "istio-proxy", "image": "proxy"}), "container istio-proxy"),
    (lambda s: s["initContainers"].append({"name": "vault-agent-init"}), "container vault-agent-init"),
    (lambda s: s["initContainers"].pop(0), "the loss of container kraftbridge-prepare"),
    (lambda s: s["initContainers"].reverse(), "order of initContainers"),
    (lambda s: first(s).update(image="mirror/kafka:1"), "image of container kafka"),
    (lambda s: first(s).update(command=["/inject"]), "command of container kafka"),
    (lambda s: first(s).update(args=["x"]), "args of container kafka"),
    (lambda s: first(s).update(workingDir="/"), "workingDir of container kafka"),
    (lambda s: first(s).update(lifecycle={"postStart": {"exec": {"command": ["x"]}}}), "lifecycle.postStart.exec.command of container kafka"),
    (lambda s: first(s).update(livenessProbe=HTTP), "livenessProbe.httpGet.path of container kafka"),
    (lambda s: first(s).update(ports=[{"containerPort": 1, "hostPort": 1}]), "ports of container kafka"),
    (lambda s: first(s).update(terminationMessagePath="/data/x"), "terminationMessagePath of container kafka"),
    (lambda s: first(s).update(imagePullPolicy="Never"), "imagePullPolicy of container kafka"),
    (lambda s: first(s).update(volumeDevices=[{"name": "raw", "devicePath": "/dev/x"}]), "volumeDevices /dev/x of container kafka"),
    (lambda s: first(s).update(stdin=True), "stdin of container kafka"),
    (lambda s: first(s)["env"].append({"name": "OTEL", "value": "-javaagent:otel.jar"}), "env OTEL of container kafka"),
    (lambda s: first(s)["env"][-1].update(value="-javaagent:otel.jar"), "env _JAVA_OPTIONS.value of container kafka"),
    (lambda s: first(s)["env"].reverse(), "order of env of container kafka"),
    (lambda s: first(s)["envFrom"].append({"secretRef": {"name": "x"}}), "envFrom of container kafka"),
    (lambda s: first(s)["volumeMounts"].append({"name": "host", "mountPath": "/x"}), "volumeMounts /x of container kafka"),
    (lambda s: first(s)["volumeMounts"][0].update(mountPropagation="Bidirectional"), "volumeMounts /kraftbridge-dry-start.mountPropagation of container kafka"),
    (lambda s: first(s)["resources"]["limits"].update({"nvidia.com/gpu": "1"}), "resources.limits.nvidia.com/gpu of container kafka"),
    (lambda s: first(s)["resources"]["requests"].update(cpu="8"), "resources.requests.cpu of container kafka"),
    (lambda s: first(s)["securityContext"].update(privileged=True), "securityContext.privileged of container kafka"),
    (lambda s: first(s)["securityContext"].update(runAsUser=0), "securityContext.runAsUser of container kafka"),
    (lambda s: first(s)["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]), "securityContext.capabilities.add of container kafka"),
    (lambda s: first(s)["securityContext"].update(seccompProfile={"type": "Unconfined"}), "securityContext.seccompProfile.type of container kafka"),
    (lambda s: s.update(fieldOfTomorrow={"on": True}), "fieldOfTomorrow.on"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "found"), CHANGES)
def test_what_admission_put_in_is_named(change: Change, found: str) -> None:
    pod = copy_pod(FACTS, EACH)
    kept = made(pod)
    change(kept["spec"])
    assert found in additions(pod, kept)
    assert len(additions(pod, kept)) <= 3


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda m: m["labels"].pop("kraftbridge.dev/role"), "the loss of label kraftbridge.dev/role"),
        (lambda m: m["labels"].update(app="kafka"), "label app"),
        (lambda m: m["annotations"].update({"k8s.v1.cni.cncf.io/networks": "open"}), "annotation k8s.v1.cni.cncf.io/networks"),
        (lambda m: m["annotations"].update({"linkerd.io/inject": "enabled"}), "annotation linkerd.io/inject"),
        (lambda m: m.update(finalizers=["x/y"]), "finalizers"),
        (lambda m: m.update(ownerReferences=[]), "the loss of ownerReferences uid-1"),
    ],
)  # fmt: skip
def test_what_admission_did_to_the_metadata_is_named(pod: dict[str, Any], change: Change, found: str) -> None:
    kept = made(pod)
    change(kept["metadata"])
    assert additions(pod, kept) == (found,)


def test_limits_of_the_namespace_are_filled_in_by_kubernetes(pod: dict[str, Any]) -> None:
    kept = made(pod)
    first(kept["spec"])["resources"] = {
        "requests": {**first(kept["spec"])["resources"].get("requests", {}), "ephemeral-storage": "1Gi"},
        "limits": {**first(kept["spec"])["resources"].get("limits", {}), "cpu": "1"},
    }
    assert additions(pod, kept) != ()
    kept["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: cpu limit"
    assert additions(pod, kept) == ()


# ------------------------------------------------------------------------------------------------------ alike


def running() -> dict[str, Any]:
    """Return a running pod as the API server made it from the brokers' template."""
    live = made(copy.deepcopy(TEMPLATE))
    live["metadata"]["labels"] |= {"statefulset.kubernetes.io/pod-name": "kafka-1", "controller-revision-hash": "1"}
    live["spec"] |= {"hostname": "kafka-1", "subdomain": "kafka-headless", "nodeName": "n1", "serviceAccount": "kafka"}
    live["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data-kafka-1"}})
    return live


def mirror(spec: dict[str, Any]) -> None:
    for each in (*spec.get("initContainers", []), *spec["containers"]):
        each["image"] = f"mirror.example/{each['image']}"


def inject(spec: dict[str, Any]) -> None:
    spec["containers"].append({"name": "istio-proxy", "image": "proxy:1", "args": [str(len(spec["containers"]))]})
    spec.setdefault("initContainers", []).append(
        {"name": "istio-init", "image": "proxy:1", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
    )
    spec.setdefault("volumes", []).append({"name": "istio-envoy", "emptyDir": {"medium": "Memory"}})


def assign(spec: dict[str, Any]) -> None:
    spec["securityContext"]["seLinuxOptions"] = {"level": "s0:c26,c5"}
    for each in (*spec.get("initContainers", []), *spec["containers"]):
        each.setdefault("securityContext", {})["runAsGroup"] = 1000650000


def tolerate(spec: dict[str, Any]) -> None:
    spec["tolerations"].append({"key": "team", "operator": "Equal", "value": "shop", "effect": "NoSchedule"})
    spec.setdefault("nodeSelector", {})["pool"] = "shop"


@pytest.mark.parametrize("change", [mirror, inject, assign, tolerate])
def test_what_admission_did_to_the_brokers_too_does_not_count(pod: dict[str, Any], change: Change) -> None:
    live = running()
    kept = made(pod)
    change(kept["spec"])
    assert additions(pod, kept, alike([(TEMPLATE, live)])) != (), "the running pod was not changed like this"
    change(live["spec"])
    assert additions(pod, kept, alike([(TEMPLATE, live)])) == ()


def test_another_image_from_the_mirror_is_named(pod: dict[str, Any]) -> None:
    live = running()
    mirror(live["spec"])
    kept = made(pod)
    first(kept["spec"])["image"] = "mirror.example/somebodys:1"
    assert len(additions(pod, kept, alike([(TEMPLATE, live)]))) == 1


NEVER: list[Change] = [
    lambda s: s.update(hostNetwork=True),
    lambda s: s.update(hostPID=True),
    lambda s: s.update(shareProcessNamespace=True, hostIPC=True),
    lambda s: s.update(dnsPolicy="ClusterFirst"),
    lambda s: s.update(hostname="kafka-9"),
    lambda s: s.update(nodeName="n1"),
    lambda s: s.update(serviceAccountName="kafka", serviceAccount="kafka"),
    lambda s: s.update(automountServiceAccountToken=True),
    lambda s: s.setdefault("volumes", []).append({"name": "disk", "hostPath": {"path": "/"}}),
    lambda s: s.setdefault("volumes", []).append({"name": "share", "nfs": {"server": "10.0.0.1", "path": "/"}}),
    lambda s: s.setdefault("volumes", []).append({"name": "data", "persistentVolumeClaim": {"claimName": "data-kafka-1"}}),
    lambda s: s.setdefault("volumes", []).append({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}),
    lambda s: s["containers"].append({"name": "shell", "image": "x", "securityContext": {"privileged": True}}),
    lambda s: s["containers"].append({"name": "shell", "image": "x", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
    lambda s: s["containers"].append({"name": "shell", "image": "x", "ports": [{"containerPort": 1, "hostPort": 1}]}),
    lambda s: s["containers"][0].setdefault("securityContext", {}).setdefault("capabilities", {}).update(add=["SYS_PTRACE"]),
    lambda s: s["containers"][0].update(ports=[{"containerPort": 1, "hostPort": 1}]),
]  # fmt: skip


@pytest.mark.parametrize("change", NEVER)
def test_what_leads_out_of_the_fence_is_named_though_the_brokers_have_it(pod: dict[str, Any], change: Change) -> None:
    live = running()
    kept = made(pod)
    change(live["spec"])
    change(kept["spec"])
    assert additions(pod, kept, alike([(TEMPLATE, live)])) != ()


@pytest.mark.parametrize(
    "change", [host_path, lambda s: first(s).update(lifecycle={"preStop": {"exec": {"command": ["stop"]}}})]
)
def test_what_the_template_has_and_a_copy_must_not_have_is_named(change: Change) -> None:
    """The running pod has it by its template: admission put it into the copy alone."""
    pod = copy_pod(FACTS, EACH)
    kept = made(pod)
    change(kept["spec"])
    assert additions(pod, kept, alike([(TEMPLATE, running())])) != ()


def test_labels_of_the_brokers_own_controller_are_named(pod: dict[str, Any]) -> None:
    kept = made(pod)
    kept["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = "kafka-1"
    found = additions(pod, kept, alike([(TEMPLATE, running())]))
    assert found == ("label statefulset.kubernetes.io/pod-name",)


def test_a_pod_may_have_the_priority_of_a_running_broker(pod: dict[str, Any]) -> None:
    kept = made(pod)
    kept["spec"] |= {"priority": 1000, "priorityClassName": "default-of-all"}
    assert additions(pod, kept, Alike(priority=1000)) == ()
    assert additions(pod, kept, Alike(priority=999)) == ("priority",)


def test_what_a_job_adds_to_its_pod_does_not_count(pod: dict[str, Any]) -> None:
    kept = made(pod)
    kept["metadata"]["labels"] |= {"batch.kubernetes.io/job-name": "j", "job-name": "j"}
    kept["metadata"] |= {"ownerReferences": [{"uid": "j"}], "finalizers": ["batch.kubernetes.io/job-tracking"]}
    kept["spec"]["nodeName"] = "n1"
    assert additions(pod, kept) != ()
    assert additions(pod, kept, by_job=True) == ()
    kept["spec"]["hostPID"] = True
    assert additions(pod, kept, by_job=True) == ("hostPID",)
