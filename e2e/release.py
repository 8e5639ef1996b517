"""``python -m e2e.release``: install a release as its users do, from a registry that was empty before.

An image registry starts on this machine with nothing in it. `.ci/release.py dry-run --push` pushes the images and the chart of a release to it, as the
release workflow does. Then ``helm install oci://…`` without any value for images, and the node pulls. ``--demo`` then runs the demonstration with that
chart, and upgrades its brokers by a chart of their own: with the values of the final manifest, and with those from before.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.harness.kube import CLUSTER, REPOSITORY, CommandFailedError, Kube, current_kube, eventually, run
from e2e.harness.operator_install import RELEASE, OperatorInstall
from e2e.harness.own_chart import hand_over
from e2e.harness.sole_use import sole_use

NAMESPACE = "kafka-release"
PORT = 5005
ARTIFACTS = REPOSITORY / ".artifacts/release"
DEV_IMAGES = ("localhost/kraftbridge-operator:dev", "localhost/kraftbridge-verifier:dev")
PULLED = "Successfully pulled image"
"""How the kubelet's event of reason Pulled begins after a pull; "Container image … already present" otherwise."""


@contextmanager
def empty_registry(port: int) -> Iterator[str]:
    """Run distribution's registry on the loopback address with an empty storage; yield its ``host:port``.

    Raises
    ------
    CommandFailedError
        If something else listens on that port, or the registry does not answer.
    """
    address = f"127.0.0.1:{port}"
    if _answers(address):
        raise CommandFailedError(f"something on this machine already answers at {address}: choose another --port")
    run(CLUSTER, "build-registry")
    program = next(path for entry in _cluster_path().split(":") if (path := Path(entry) / "registry").is_file())
    with tempfile.TemporaryDirectory(prefix="kraftbridge-registry-") as storage:
        configuration = Path(storage) / "config.json"  # JSON is YAML, too
        configuration.write_text(
            json.dumps(
                {
                    "version": "0.1",
                    "log": {"level": "warn"},
                    "storage": {"filesystem": {"rootdirectory": f"{storage}/data"}},
                    "http": {"addr": address},
                }
            )
        )
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        with (ARTIFACTS / "registry.log").open("w") as log:
            process = subprocess.Popen([program, "serve", configuration], stdout=log, stderr=subprocess.STDOUT)
            try:
                eventually(lambda: _answers(address), f"the registry at {address} answers; its log is {log.name}", 20)
                yield address
            finally:
                process.terminate()
                process.wait(timeout=20)


def _cluster_path() -> str:
    return run("bash", "-c", f'eval "$({CLUSTER} env)" && echo "$PATH"').strip()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def catalogue(address: str) -> list[str]:
    """Return the repositories that the registry has."""
    with urllib.request.urlopen(f"http://{address}/v2/_catalog", timeout=5) as answer:
        return list(json.load(answer)["repositories"])


def transferred(registry_log: Path, name: str) -> int:
    """Return the bytes of layers that the registry served to the node for an image; 0 if the node had every layer before."""
    served = re.findall(
        rf'"GET /v2/\S+/{name}/blobs/\S+ HTTP/1.1" 200 (\d+) "[^"]*" "containerd', registry_log.read_text()
    )
    return sum(map(int, served))


def pulled(kube: Kube, namespace: str, pod: str) -> str:
    """Return the kubelet's words about the image of a pod that it pulled; an image that was there before is an error."""
    events = [
        event["message"]
        for event in kube.list("events", namespace)
        if event["involvedObject"]["name"] == pod and event["reason"] == "Pulled"
    ]
    if not events or not all(message.startswith(PULLED) for message in events):
        raise CommandFailedError(f"pod {namespace}/{pod} runs, but its image was not pulled: {events or 'no event'}")
    return str(events[-1])


def verifier_pod(image: str) -> dict[str, Any]:
    """Return a pod that starts the verification of an image, and ends."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "verifier"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "runAsUser": 185, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "verifier",
                    "image": image,
                    "args": ["/opt/kraftbridge/venv/bin/python", "-m", "kraftbridge.verification", "--help"],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def install_from_registry(kube: Kube, operator: OperatorInstall, registry: str) -> None:
    """Install the chart from the registry; start the operator and the verifier that it names; raise unless both were pulled."""
    operator.install()
    (pod,) = operator.pods()
    image = pod["spec"]["containers"][0]["image"]
    print(f"operator, Ready: {pulled(kube, operator.namespace, pod['metadata']['name'])}")
    settings = {e["name"]: e.get("value", "") for e in pod["spec"]["containers"][0]["env"]}
    verifier = settings["KRAFTBRIDGE_VERIFIER_IMAGE"]
    if not all(reference.startswith(f"{registry}/") for reference in (image, verifier)):
        raise CommandFailedError(f"the chart starts {image} and {verifier}, which are not of {registry}")
    kube.kubectl("create", "-n", operator.watched, "-f", "-", stdin=json.dumps(verifier_pod(verifier)))
    kube.kubectl(
        "wait", "-n", operator.watched, "pod/verifier", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s"
    )
    print(f"verifier, Succeeded: {pulled(kube, operator.watched, 'verifier')}")
    if RELEASE not in kube.helm("list", "--namespace", operator.namespace, "--short").split():
        raise CommandFailedError(f"helm does not list the release {RELEASE}")


def prove(kube: Kube, port: int, *, demo: list[str] | None) -> None:
    """Push a release to an empty registry and install it, and with ``demo`` migrate with it and hand over."""
    with empty_registry(port) as address:
        print(f"==> registry {address}: {catalogue(address) or 'empty'}", flush=True)
        registry = f"{address}/kraftbridge"
        began = time.monotonic()
        subprocess.run(
            [sys.executable, REPOSITORY / ".ci/release.py", "dry-run", "--registry", registry, "--push"], check=True
        )
        print(f"==> pushed in {time.monotonic() - began:.0f} s: {', '.join(catalogue(address))}", flush=True)
        chart = f"oci://{registry}/charts/kraftbridge"
        names = run(sys.executable, REPOSITORY / ".ci/release.py", "names", "--registry", registry)
        references = [line.partition("=")[2] for line in names.splitlines()]
        # The node must not take the layers from the images that e2e/images/build has loaded, or that an earlier proof has left.
        forget([*DEV_IMAGES, *references])
        operator = OperatorInstall(kube, NAMESPACE, chart=chart)
        kube.claim_namespace(NAMESPACE)
        try:
            began = time.monotonic()
            install_from_registry(kube, operator, registry)
            served = {name: transferred(ARTIFACTS / "registry.log", name) for name in ("operator", "verifier")}
            if not all(served.values()):
                raise CommandFailedError(f"the node took no layer from the registry, bytes by image: {served}")
            print(f"==> helm install {chart}: installed and pulled in {time.monotonic() - began:.0f} s", flush=True)
            print(f"==> the registry served layers of {', '.join(f'{n}: {b / 1e6:.0f} MB' for n, b in served.items())}")
        finally:
            operator.uninstall()
            kube.remove_namespace(NAMESPACE)
        if demo is not None:
            migrate_and_hand_over(kube, chart, demo)
        forget(references)
        for reference in references:
            run("buildah", "rmi", reference)  # the tag; the image has another


def migrate_and_hand_over(kube: Kube, chart: str, options: list[str]) -> None:
    """Run the demonstration with a released chart, then upgrade the brokers by their own chart; remove both."""
    program = [sys.executable, "-m", "e2e.demo"]
    try:
        subprocess.run([*program, "--chart", chart, "--keep", *options], cwd=REPOSITORY, check=True)
        print("==> hand-over", flush=True)
        hand_over(
            kube, "kafka-demo", (REPOSITORY / ".artifacts/demo/brokers.yaml").read_text(), ARTIFACTS / "hand-over"
        )
    finally:
        subprocess.run([*program, "--clean"], cwd=REPOSITORY, check=False)


def forget(images: Iterable[str]) -> None:
    """Remove images from the node with the layers that no other image has."""
    for image in images:
        if subprocess.run([CLUSTER, "has-image", image], check=False).returncode == 0:
            run(CLUSTER, "remove-image", image)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=PORT, help="of the registry, on the loopback address")
    parser.add_argument(
        "--demo",
        nargs=argparse.REMAINDER,
        help="then a migration and the hand-over; what follows are options of e2e.demo",
    )
    arguments = parser.parse_args()
    if shutil.which("buildah") is None:
        print("there is no buildah on PATH; run: make prerequisites", file=sys.stderr)
        return 1
    kube = current_kube()
    if not kube.embedded:
        print(f"a registry at the loopback address is not reachable from the nodes of {kube.context}", file=sys.stderr)
        return 1
    try:
        with sole_use(kube):
            prove(kube, arguments.port, demo=arguments.demo)
    except (CommandFailedError, subprocess.CalledProcessError) as error:
        print(f"not proven: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
