"""A pod without credentials attacks the pods of a verification on a real cluster, with their NetworkPolicy and without it.

The verification waits for its release, as one that the operator has launched: the objects are those that the operator creates, in the same order. Each attack
is also made with what it lacks: a port that is open, or the migration's secret.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from tests.chart.conftest import ROOT
from tests.support.every_pod import run_facts
from tests.support.observations import CONTROLLERS, spec_document
from tests.support.strangers import KUBERNETES, QUIET, SCAN, STRANGER, TALK

from kraftbridge.builders import names, verification
from kraftbridge.constants import LABEL_RUN
from kraftbridge.models.report import READY_KEY
from kraftbridge.models.spec import MigrationSpec, Runner

from .conftest import Cluster, eventually

pytestmark = pytest.mark.long

NAMESPACE: Final = "chart-test-strangers"
IMAGE: Final = "localhost/kraftbridge-verifier:dev"
PYTHON: Final = "/opt/kraftbridge/venv/bin/python"
ACCOUNT: Final = "verifier"
SECONDS: Final = 300.0
LISTENS: Final = 8123
"""A port that a test opens itself."""
_LOOPBACK: Final = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}

LISTENING: Final = """
import json
found = []
for family in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{family}").read().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A":
            host, _, port = words[1].rpartition(":")
            found.append([host, int(port, 16)])
print("LISTENING", json.dumps(found))
"""
SERVE: Final = f"""
import http.server, threading
server = http.server.ThreadingHTTPServer(("0.0.0.0", {LISTENS}), http.server.SimpleHTTPRequestHandler)
threading.Timer(240, server.shutdown).start()
server.serve_forever()
"""


@dataclass(frozen=True)
class Namespace:
    """A namespace of a cluster, and the pod of the stranger in it."""

    cluster: Cluster

    def run(self, *arguments: str, stdin: str | None = None, seconds: float = SECONDS) -> str:
        context = ["--context", self.cluster.context] if self.cluster.context else []
        command = [self.cluster.kubectl_binary, *context, "--namespace", NAMESPACE, *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env=self.cluster.environment, timeout=seconds
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr[-3000:]}"
        return done.stdout

    def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Create an object without its owner: the migration does not exist, and the garbage collector deletes what an absent object owns."""
        metadata = {k: v for k, v in obj["metadata"].items() if k != "ownerReferences"} | {"namespace": NAMESPACE}
        made = self.run("create", "--filename", "-", "--output", "json", stdin=json.dumps(obj | {"metadata": metadata}))
        return dict(json.loads(made))

    def python(self, pod: str, script: str, *arguments: str) -> str:
        """Run a script in a pod's only container; return its output."""
        return self.run("exec", "--stdin", pod, "--", PYTHON, "-", *arguments, stdin=script)

    def pods(self, run_id: str) -> dict[str, str]:
        """Return the addresses of a run's pods that run, by name."""
        found = json.loads(self.run("get", "pods", "--selector", f"{LABEL_RUN}={run_id}", "--output", "json"))["items"]
        return {p["metadata"]["name"]: p["status"]["podIP"] for p in found if p["status"].get("phase") == "Running"}

    # -------------------------------------------------------------------------------------------- attacks

    def scan(self, host: str) -> set[int]:
        """Return the ports of a host that the stranger can connect to."""
        told = self.python("stranger", SCAN, host, "1.5")
        return set(json.loads(told.partition("OPEN ")[2]))

    def talk(self, host: str, ports: set[int]) -> dict[str, str]:
        """Return what is answered to words of several protocols."""
        told = self.python("stranger", TALK, host, *map(str, sorted(ports)))
        return dict(json.loads(told.partition("TOLD ")[2]))

    def ask(self, host: str, ports: set[int], *settings: str, master: str = "local[1]") -> str:
        """Return what a Spark process gets that knows the ports."""
        addresses = ",".join(f"{host}:{port}" for port in sorted(ports))
        told = self.python("stranger", STRANGER, addresses, master, *settings, *QUIET)
        assert "ASKED" in told, told
        return told

    def knock(self, host: str, port: int) -> bool:
        """Return whether the stranger can connect to one port."""
        script = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
        context = ["--context", self.cluster.context] if self.cluster.context else []
        command = [self.cluster.kubectl_binary, *context, "--namespace", NAMESPACE, "exec", "stranger", "--"]
        done = subprocess.run(
            [*command, PYTHON, "-c", script, host, str(port)], capture_output=True, check=False, env=self.cluster.environment, timeout=60
        )  # fmt: skip
        return done.returncode == 0


def listening(space: Namespace, pod: str) -> set[int]:
    """Return the ports beyond loopback on which a pod listens, as its own kernel says."""
    told = json.loads(space.python(pod, LISTENING).partition("LISTENING ")[2])
    return {port for host, port in told if host not in _LOOPBACK}


@pytest.fixture(scope="module")
def space(cluster: Cluster) -> Iterator[Namespace]:
    nodes = json.loads(cluster.do("get", "nodes", "--output", "json"))["items"]
    if not nodes:
        pytest.skip("this API server has no node, so no pod runs")
    if cluster.context:
        pytest.skip(
            "whether the cluster of KUBE_CONTEXT has Spark's operator and enforces NetworkPolicies is not known"
        )
    cluster.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait")
    cluster.do("create", "namespace", NAMESPACE)
    found = Namespace(cluster)
    try:
        subprocess.run(
            [ROOT / "e2e/cluster/cluster", "spark-operator", NAMESPACE], check=True, capture_output=True, timeout=900
        )
        found.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}})
        reader = {"name": names.log_reader_secret(CONTROLLERS)}
        found.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": reader, "stringData": {"token": "x", "ca.crt": "x"}}
        )
        found.create(stranger())
        found.run("wait", "--for=condition=Ready", "pod/stranger", "--timeout=120s")
        yield found
    finally:
        cluster.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def stranger() -> dict[str, Any]:
    """Return a pod that has Spark's programs, and neither an account nor a Secret."""
    container = {"name": "main", "image": IMAGE, "command": ["sleep", "3600"], "imagePullPolicy": "IfNotPresent"}
    spec = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec}


@dataclass(frozen=True)
class Run:
    """A verification that waits for its release."""

    space: Namespace
    facts: verification.RunFacts
    pods: dict[str, str]

    @property
    def policy(self) -> str:
        """Name of its NetworkPolicy."""
        return names.verification_config_map(self.facts.run_id)


def launched(space: Namespace, executors: int, runner: Runner) -> Run:
    """Launch a verification as the operator does (``Actuator._launch``), and wait until it is armed."""
    document = spec_document()
    wanted = {"executors": executors, "imagePullPolicy": "IfNotPresent"}
    document["verification"] = {**document.get("verification", {}), **wanted}
    document["controllers"].pop("passwordEncoderSecret")
    spec = MigrationSpec.model_validate(document)
    facts = run_facts(
        namespace=NAMESPACE, run_id=f"strangers-{executors}", migration=f"strangers-{executors}", image=IMAGE, service_account=ACCOUNT
    )  # fmt: skip
    config_map = space.create(verification.config_map(spec, facts))
    space.create(verification.network_policy(facts, config_map["metadata"]["uid"]))
    if verification.has_executors(spec, facts, runner):
        space.create(verification.spark_secret(facts, "a" * 64))
    rights_uid = space.create(verification.rights_owner(facts))["metadata"]["uid"]
    for obj in verification.access(spec, facts, runner, rights_uid):
        space.create(obj)
    space.create(verification.application(spec, facts, runner))
    name = names.verification_config_map(facts.run_id)

    def armed() -> bool:
        data = json.loads(space.run("get", "configmap", name, "--output", "json"))["data"]
        return READY_KEY in data and len(space.pods(facts.run_id)) == 1 + executors

    eventually(armed, f"the run with {executors} executors is armed", seconds=SECONDS)
    return Run(space, facts, space.pods(facts.run_id))


@pytest.fixture(scope="module")
def alone(space: Namespace) -> Run:
    return launched(space, 0, Runner.JOB)


@pytest.fixture(scope="module")
def apart(space: Namespace) -> Run:
    return launched(space, 1, Runner.SPARK_APPLICATION)


def without_policy(run: Run) -> None:
    """Delete the run's NetworkPolicy, as in a cluster that enforces none."""
    run.space.run("delete", "networkpolicy", run.policy, "--ignore-not-found")


def opened(run: Run, pod: str) -> None:
    """Let a pod listen on a port of its own for a while, so that a way to it can be seen."""
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SERVE!r}], stdin=-3, stdout=-3, stderr=-3, start_new_session=True)"
    run.space.python(pod, script)
    eventually(lambda: LISTENS in listening(run.space, pod), "the port is open", seconds=60)


def test_nobody_reaches_a_job(alone: Run) -> None:
    ((pod, host),) = alone.pods.items()
    opened(alone, pod)
    eventually(lambda: not alone.space.knock(host, LISTENS), "the policy is enforced", seconds=60)
    assert alone.space.scan(host) == set()
    without_policy(alone)
    eventually(lambda: alone.space.knock(host, LISTENS), "nothing enforces the policy", seconds=60)
    assert alone.space.scan(host) == {LISTENS}, "this test's own port, and none of Spark's"


def test_nobody_reaches_a_driver_and_its_executors(apart: Run) -> None:
    space = apart.space
    for pod, host in apart.pods.items():
        ports = listening(space, pod)
        assert ports, f"{pod}: Spark listens on the pod's address"
        eventually(lambda: not any(space.knock(host, p) for p in ports), "the policy is enforced", seconds=120)  # noqa: B023 - called at once
        assert space.scan(host) == set()


def test_without_a_policy_a_driver_and_its_executors_answer_only_who_has_the_secret(apart: Run) -> None:
    space = apart.space
    without_policy(apart)
    ports = {pod: listening(space, pod) for pod in apart.pods}
    for pod, host in apart.pods.items():
        eventually(lambda: space.scan(host) == ports[pod], f"what {pod} listens on is open", seconds=120)  # noqa: B023 - called at once
    (driver,) = (pod for pod in apart.pods if pod.endswith("-driver"))
    for pod, host in apart.pods.items():
        assert set(space.talk(host, ports[pod]).values()) == {""}, "nothing is answered to any word"
        told = space.ask(host, ports[pod])
        assert "ANSWERED" not in told, told
    secret = base64.b64decode(
        json.loads(space.run("get", "secret", names.spark_secret(apart.facts.migration, apart.facts.migration_uid), "--output", "json"))["data"]["secret"]
    ).decode()  # fmt: skip
    settings = authentication(space, apart)
    with_guess(space, "b" * len(secret))
    for pod, host in apart.pods.items():
        told = space.ask(host, ports[pod], *settings, master=KUBERNETES)
        assert "ANSWERED" not in told, told
    with_guess(space, secret)
    told = space.ask(apart.pods[driver], ports[driver], *settings, master=KUBERNETES)
    assert "ANSWERED block managers" in told, f"this test's own stranger knows how to ask: {told}"
    assert "ANSWERED scheduler" in told, told


def authentication(space: Namespace, run: Run) -> list[str]:
    """Return the settings of the run's own processes, with a file of the stranger's in place of the secret's."""
    found = json.loads(space.run("get", "sparkapplication", run.facts.run_id, "--output", "json"))["spec"]["sparkConf"]
    file = found["spark.authenticate.secret.file"]
    keys = [k for k in found if k.startswith(("spark.authenticate", "spark.network.crypto", "spark.io.encryption"))]
    return [f"{key}={found[key].replace(file, '/tmp/secret')}" for key in keys]


def with_guess(space: Namespace, secret: str) -> None:
    """Write what the stranger takes for the secret."""
    space.python("stranger", f"open('/tmp/secret', 'w').write({secret!r})")
    time.sleep(0.1)
