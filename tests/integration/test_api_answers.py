"""What a chart's init container asks the API server with kubectl, the stand-in of a copy answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.chart.conftest import cluster_environment
from tests.support.programs import free_port

from kraftbridge.copies.admission import API_DIRECTORY
from kraftbridge.pods.api_answers import NOT_ANSWERED
from kraftbridge.storage.ports import Object

pytestmark = pytest.mark.integration

OBJECTS: list[Object] = [
    {
        "kind": "Service",
        "metadata": {"name": "kafka-0-external", "namespace": "shop", "labels": {"pod": "kafka-0"}},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "tcp-kafka", "port": 9094, "nodePort": 30904}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}},
    },
    {"kind": "Service", "metadata": {"name": "zookeeper", "namespace": "shop"}, "spec": {"ports": [{"port": 2181}]}},
    {
        "kind": "Pod",
        "metadata": {"name": "kafka-0", "namespace": "shop", "labels": {"zone": "b"}},
        "status": {"hostIP": "10.9.9.9"},
    },
]
Ask = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Yield a function that runs kubectl as a container with a service account does: nothing but that tells it the server."""
    kubectl = shutil.which("kubectl", path=cluster_environment()["PATH"])
    assert kubectl is not None, "there is no kubectl in the cache; run: make cluster-build"
    objects = tmp_path / "api.json"
    objects.write_text(json.dumps(OBJECTS))
    identity = tmp_path / "identity"
    identity.mkdir()
    port = free_port()
    log = tmp_path / "server.log"
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "kraftbridge.pods.api_answers", f"--address=127.0.0.1:{port}"),
            *(f"--objects={objects}", "--namespace=shop", f"--identity={identity}"),
        ],
        stderr=log.open("w"),
    )
    # A file system of its own, so that the files of a service account are where clients look for them.
    inside = (
        f'mount -t tmpfs none /run && mkdir -p {API_DIRECTORY} && mount --bind {identity} {API_DIRECTORY} && exec "$@"'
    )
    place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **place}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "--mount", "sh", "-c", inside, "sh", kubectl, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    try:
        while not (identity / "token").exists():
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
        yield run
    finally:
        server.terminate()
        assert server.wait(30) == 0, "a copy waits for nobody who does not end"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("svc", "kafka-0-external", "-n", "shop", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}"), "203.0.113.7"),
        (("svc", "kafka-0-external", "-n", "shop", "-o", "jsonpath={.spec.ports[0].nodePort}"), "30904"),
        (("service/kafka-0-external", "-o", "jsonpath={.spec.type}"), "LoadBalancer"),
        (("services", "-l", "pod=kafka-0", "-o", "jsonpath={.items[*].metadata.name}"), "kafka-0-external"),
        (("services", "--field-selector=metadata.name=zookeeper", "-o", "jsonpath={.items[*].metadata.name}"), "zookeeper"),
        (("pod", "kafka-0", "-o", "jsonpath={.status.hostIP} {.metadata.labels.zone}"), "10.9.9.9 b"),
        (("services", "-o", "name"), "service/kafka-0-external\nservice/zookeeper\n"),
    ],
)  # fmt: skip
def test_kubectl_gets_what_the_running_pods_init_container_got(
    ask: Ask, arguments: tuple[str, ...], answer: str
) -> None:
    done = ask("get", *arguments)
    assert (done.returncode, done.stdout) == (0, answer), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "svc", "other"),
        ("get", "svc", "-n", "elsewhere"),
        ("get", "node", "n1"),
        ("get", "secret", "s"),
        ("get", "svc", "-l", "pod in (a, b)"),
        ("delete", "svc", "zookeeper"),
        ("label", "pod", "kafka-0", "zone=c", "--overwrite"),
    ],
)
def test_what_is_not_there_and_every_change_is_refused_and_logged(
    ask: Ask, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = ask(*arguments)
    assert done.returncode != 0, done.stdout
    assert NOT_ANSWERED in (tmp_path / "server.log").read_text(), done.stderr
