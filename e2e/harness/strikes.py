"""The faults, injected into a real cluster. Faults on the node need the embedded cluster, whose processes run on this machine."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import CLUSTER, run
from e2e.harness.matrix import Fault
from e2e.harness.migration import VERIFIER_IMAGE, Migration, View
from e2e.harness.operator_install import OperatorInstall
from e2e.harness.small_volumes import SmallVolumes

FROZEN_S = 25.0
OPERATOR_FROZEN_S = 50.0
"""Longer than the duration of a Lease (30 s) plus the start of an operator; shorter than the timeout of the kubelet's probe."""
BOTH_AWAKE_S = 5.0
UNDO_AFTER_S = 8.0
NO_SUCH_IMAGE = "localhost/kraftbridge-verifier:no-such-tag"


class NotStruckError(Exception):
    """The fault was not possible at this time, and nothing was changed."""


@dataclass
class Struck:
    """A fault that was injected."""

    what: str
    uids: frozenset[str] = frozenset()
    """UIDs of the pods that it stopped."""
    undo: Callable[[], None] | None = None
    """Ends a lasting fault; called when ``named`` matches, or after a time."""
    named: re.Pattern[str] | None = None
    """Text that the status must contain before the fault ends."""
    missed: Callable[[View], str] = lambda _: ""
    """The reason why the fault had no effect; ``""`` if it had one."""
    undo_at_latest_s: float = 120.0
    at: float = field(default_factory=time.time)

    def is_due(self, view: View | None) -> bool:
        """Whether it is time to undo it."""
        passed = time.time() - self.at
        said = view is not None and self.named is not None and self.named.search(f"{view.message} {view.blocked}")
        return bool(said and passed >= UNDO_AFTER_S) or passed >= self.undo_at_latest_s


@dataclass(frozen=True)
class Strikes:
    """Injects faults into one foreign cluster and its migration."""

    cluster: ForeignCluster
    operator: OperatorInstall
    migration: Migration
    volumes: SmallVolumes | None = None

    def strike(self, fault: Fault, view: View) -> Struck:
        """Do it.

        Raises
        ------
        NotStruckError
            If there is nothing to strike just now.
        """
        match fault:
            case Fault.OPERATOR_KILLED:
                return self._operator_killed()
            case Fault.OPERATOR_FROZEN:
                return self._operator_frozen()
            case Fault.OPERATOR_UPGRADED:
                return self._operator_upgraded()
            case Fault.CONTROLLER_KILLED:
                return self._pod_deleted(self._active_controller(view))
            case Fault.CONTROLLER_EVICTED:
                return self._evicted(self._active_controller(view))
            case Fault.CONTROLLER_DISK_FULL:
                return self._disk_full(self._active_controller(view))
            case Fault.BROKER_KILLED:
                return self._pod_deleted(self._idle_broker(view))
            case Fault.ZOOKEEPER_FROZEN:
                return self._frozen(f"{self.cluster.zookeeper}-0")
            case Fault.ZOOKEEPER_RESTARTED:
                return self._pod_deleted(f"{self.cluster.zookeeper}-0", grace_s=None)
            case Fault.ZOOKEEPER_EDITED:
                return self._zookeeper_edited()
            case Fault.API_SERVER_RESTARTED:
                begin = time.monotonic()
                run(CLUSTER, "restart", "kube-apiserver")
                return Struck(
                    f"API server restarted in {time.monotonic() - begin:.0f} s",
                    at=time.time() - (time.monotonic() - begin),
                )
            case Fault.DRIVER_KILLED_ARMED | Fault.DRIVER_KILLED_VERIFYING:
                return self._driver_killed(view)
            case Fault.IMAGE_MISSING:
                return self._image_missing(view)
            case Fault.ROLLBACK:
                return Struck(self.migration.set_target("ZooKeeper"))

    def killer(self, pod: str) -> Callable[[], Struck]:
        """Return what sends SIGKILL to a pod's Java process at once; its container starts again in the same pod."""
        # Looked up beforehand: the copy takes a second.
        pids = processes(self._pod(pod)["metadata"]["uid"], "java")

        def kill() -> Struck:
            signal_all(pids, signal.SIGKILL)
            return Struck(f"SIGKILL to the process of pod {pod}")

        return kill

    def _operator_killed(self) -> Struck:
        pods = self.operator.kill()
        if not pods:
            raise NotStruckError("the operator has no pod just now")
        return Struck(f"deleted {', '.join(pods)}")

    def _operator_frozen(self) -> Struck:
        pods = self.operator.pods()
        if len(pods) != 1 or not (pids := processes(pods[0]["metadata"]["uid"])):
            raise NotStruckError(f"the operator has {len(pods)} pods just now, or no process on this machine")
        before = self._lease_holder()
        self.operator.scale(2)
        signal_all(pids, signal.SIGSTOP)

        def thaw() -> None:
            try:
                if self._lease_holder() == before:
                    raise RuntimeError(f"nobody has taken the Lease over from {before} in {OPERATOR_FROZEN_S:.0f} s")
            finally:
                signal_all(pids, signal.SIGCONT)
                # Both are awake for a moment; then Kubernetes ends one of them.
                time.sleep(BOTH_AWAKE_S)
                self.operator.scale(1)

        name = pods[0]["metadata"]["name"]
        what = f"SIGSTOP to the process of pod {name} for {OPERATOR_FROZEN_S:.0f} s, and a second operator"
        return Struck(what, undo=thaw, undo_at_latest_s=OPERATOR_FROZEN_S)

    def _operator_upgraded(self) -> Struck:
        if not self.operator.pods():
            raise NotStruckError("the operator has no pod just now")
        image = self.operator.upgrade()

        def missed(_: View) -> str:
            images = {container["image"] for pod in self.operator.pods() for container in pod["spec"]["containers"]}
            return "" if images == {image} else f"the operator's pods run {', '.join(sorted(images)) or 'nothing'}"

        return Struck(f"helm upgrade to {image}", missed=missed)

    def _lease_holder(self) -> str:
        name = f"kraftbridge-{self.cluster.brokers}"
        lease = self.cluster.kube.get("lease", name, self.cluster.namespace)
        if lease is None:
            raise NotStruckError(f"there is no Lease {name} yet")
        return str(lease["spec"]["holderIdentity"])

    def _active_controller(self, view: View) -> str:
        quorum, controllers = view.status.get("quorum") or {}, view.status.get("controllers") or {}
        if quorum.get("leaderId") is None or not controllers:
            raise NotStruckError("there is no active controller yet")
        return f"{controllers['name']}-{quorum['leaderId']}"

    def _idle_broker(self, view: View) -> str:
        busy = (view.status.get("operation") or {}).get("pod")
        return next(name for name in reversed(self.cluster.broker_pods) if name != busy)

    def _pod(self, name: str) -> dict[str, Any]:
        pod = self.cluster.kube.get("pod", name, self.cluster.namespace)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            raise NotStruckError(f"pod {name} does not run just now")
        return pod

    def _pod_deleted(self, name: str, grace_s: int | None = 0) -> Struck:
        uid = self._pod(name)["metadata"]["uid"]
        grace = [] if grace_s is None else [f"--grace-period={grace_s}", "--force"]
        self.cluster.kube.kubectl("delete", "pod", name, "-n", self.cluster.namespace, *grace, "--wait=false")
        return Struck(f"deleted pod {name}{'' if grace_s is None else ' without grace'}", frozenset({uid}))

    def _evicted(self, name: str) -> Struck:
        namespace, uid = self.cluster.namespace, self._pod(name)["metadata"]["uid"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        self.cluster.kube.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
        return Struck(f"evicted pod {name}", frozenset({uid}))

    def _frozen(self, name: str) -> Struck:
        pids = processes(self._pod(name)["metadata"]["uid"], "java")
        if not pids:
            raise NotStruckError(f"pod {name} has no process on this machine")
        signal_all(pids, signal.SIGSTOP)
        thaw = partial(signal_all, pids, signal.SIGCONT)
        return Struck(
            f"SIGSTOP to the process of pod {name} for {FROZEN_S:.0f} s", undo=thaw, undo_at_latest_s=FROZEN_S
        )

    def _zookeeper_edited(self) -> Struck:
        # Nothing else writes this partition: what is not named was overlooked.
        partition = self.cluster.edit_partition()
        named = re.compile(f"{re.escape(partition)}|differing entities|controller failover")
        return Struck(f"leader_epoch of {partition} changed in ZooKeeper", named=named)

    def _disk_full(self, name: str) -> Struck:
        if self.volumes is None:
            raise NotStruckError("the controllers' volumes are not of a limited size")
        claim = f"data-{name}"
        path = self.volumes.fill(claim)
        words = re.compile(re.escape(name) + r"|controller " + name.rsplit("-", 1)[1])
        before = self._life(name)

        def missed(_: View) -> str:
            try:
                return "" if self._life(name) != before else f"{name} had room for what it wrote meanwhile"
            except NotStruckError:  # it is gone
                return ""

        undo = partial(path.unlink, missing_ok=True)
        return Struck(f"filled volume {claim}", undo=undo, named=words, missed=missed)

    def _life(self, name: str) -> tuple[str, int]:
        """Return what tells one life of a pod's processes from the next."""
        pod = self._pod(name)
        restarts = sum(container["restartCount"] for container in pod["status"].get("containerStatuses", []))
        return pod["metadata"]["uid"], restarts

    def _driver_killed(self, view: View) -> Struck:
        run_id = view.verifications[-1]["runId"]
        selector = f"kraftbridge.dev/run-id={run_id},spark-role!=executor"  # a Job's pod has no such label
        pods = [
            p
            for p in self.cluster.kube.list("pods", self.cluster.namespace, selector)
            if p["status"]["phase"] == "Running"
        ]
        if not pods:
            raise NotStruckError(f"the driver of {run_id} does not run")
        struck = self._pod_deleted(pods[0]["metadata"]["name"])

        def missed(later: View) -> str:
            record = next((v for v in later.verifications if v["runId"] == run_id), {})
            # A driver that is being ended may still say that it was.
            told = record.get("verdict") not in {None, "Inconclusive"}
            return f"{run_id} had ended with {record['verdict']} already" if told else ""

        struck.missed = missed
        return struck

    def _image_missing(self, view: View) -> Struck:
        count = view.status.get("verificationCount", 0)
        self._set_verifier_image(NO_SUCH_IMAGE)

        def missed(later: View) -> str:
            return "" if later.status.get("verificationCount", 0) > count else "no verification was launched meanwhile"

        return Struck(
            f"spec.verification.image is {NO_SUCH_IMAGE}",
            undo=lambda: self._set_verifier_image(VERIFIER_IMAGE),
            named=re.compile("no-such-tag|ImagePull|ErrImage"),
            missed=missed,
        )

    def _set_verifier_image(self, image: str) -> None:
        self.migration.patch({"spec": {"verification": {"image": image}}})


def processes(pod_uid: str, program: str = "") -> list[int]:
    """Return the pids on this machine of a pod's processes, by their control group; those that run one program where it is named."""
    forms = (pod_uid, pod_uid.replace("-", "_"))
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            group, name = (directory / "cgroup").read_text(), (directory / "comm").read_text().strip()
        except OSError:
            continue
        if (name == program if program else name != "pause") and any(form in group for form in forms):
            found.append(int(directory.name))
    return found


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; one that has ended meanwhile needs none."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def at_log_line(command: list[str], environment: dict[str, str], words: str, act: Callable[[], None]) -> Iterator[None]:
    """Call a function as soon as a command that follows a log prints a text."""
    program = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    process = subprocess.Popen(
        [program, *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )

    def follow() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if words in line:
                act()
                return

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield
    finally:
        process.terminate()
        process.wait()
