"""Deletes the operator's own objects as a user would, and watches how they come back."""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from subprocess import TimeoutExpired
from typing import Any

from e2e.harness.deletions import STOPS_VOTERS, Deletion, Rest, Thing, troubles
from e2e.harness.kube import CommandFailedError, Kube
from e2e.harness.migration import Migration, View, controllers_name

VOTERS = (3000, 3001, 3002)
RESTORED_WITHIN_S = 90
NAMED_WITHIN_S = 90
WHOLE_WITHIN_S = 300
BLANK_FOR_S = 15
"""How long a blank voter is watched: it must wait all the time."""
POLL_S = 0.5
ASK_GAUGES = (
    'exec 3<>/dev/tcp/localhost/9404; printf "GET /metrics HTTP/1.0\\r\\n\\r\\n" >&3; '
    'grep -E "^kafka_server_raft_metrics_(current_leader|log_end_offset|high_watermark) " <&3'
)
"""As docs/kraft.md shows it: brokers that use ZooKeeper know no quorum to describe."""
MAX_LAG = 50
"""The active controller appends twice a second, and the voters are asked one after the other."""

Object = tuple[str, str]
"""Kind and name."""


class StuckError(Exception):
    """What was deleted did not come back, so nothing else can be measured."""


@dataclass
class Watching:
    """What was seen since a deletion."""

    since: float
    rest: str
    """Message of the status before it."""
    said: dict[str, None] = field(default_factory=dict)

    def look(self, view: View) -> None:
        """Note what the status says that it did not say before."""
        if view.message and _plain(view.message) != _plain(self.rest):
            self.said[f"message: {view.message}"] = None
        for finding in view.status.get("findings") or []:
            if finding["code"] in ("ControllerClaimsLost", "OriginalsLost"):
                self.said[f"finding {finding['code']}: {finding['reason']}"] = None
        if problem := (view.status.get("listenerCertificates") or {}).get("problem"):
            self.said[f"status.listenerCertificates.problem: {problem}"] = None
        possible = view.condition("RollbackPossible")
        if possible["status"] == "False":
            self.said[f"RollbackPossible {possible['reason']}"] = None


@dataclass
class Deleter:
    """Deletes objects of one migration, of which it knows the names."""

    kube: Kube
    migration: Migration
    say: Callable[[str], None] = print
    commands: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.namespace = self.migration.namespace
        self.controllers = controllers_name(self.kube, self.namespace, self.migration.name)
        self.uid = self.controllers[-8:]

    # ------------------------------------------------------------------------------------------ what there is

    def objects(self, thing: Thing) -> list[Object]:
        """Return the objects that are deleted, by kind and name."""
        name, own = self.controllers, self.migration.name
        match thing:
            case Thing.SERVICE:
                return [("service", name)]
            case Thing.CONFIG_MAP:
                return [("configmap", self.configuration()), ("configmap", f"{name}-format")]
            case Thing.NETWORK_POLICY:
                return [("networkpolicy", name)]
            case Thing.DISRUPTION_BUDGET:
                return [("poddisruptionbudget", name)]
            case Thing.LOG_SECRETS:
                return [("secret", f"{name}-log-server"), ("secret", f"{name}-log-reader")]
            case Thing.ORIGINALS_FIRST:
                return [("secret", f"{own}-before-{self.uid}")]
            case Thing.ORIGINALS_COPY:
                return [("secret", f"{own}-before-copy-{self.uid}")]
            case Thing.ORIGINALS:
                return [*self.objects(Thing.ORIGINALS_FIRST), *self.objects(Thing.ORIGINALS_COPY)]
            case Thing.STATEFUL_SET | Thing.ORPHANED:
                return [("statefulset", name)]
            case Thing.CLAIM:
                return [("persistentvolumeclaim", f"data-{name}-{VOTERS[-1]}")]
            case Thing.AUTHORITY:
                return [("secret", f"{own}-listener-ca-{self.uid}")]
            case Thing.LISTENER_BROKERS:
                return [("secret", f"{own}-listener-brokers-{self.uid}")]
            case Thing.LISTENER_CONTROLLERS:
                return [("secret", f"{name}-listener")]

    def configuration(self) -> str:
        """Return the name of the ConfigMap that the controllers' template mounts: its content is in the name."""
        stateful_set = self.kube.get("statefulset", self.controllers, self.namespace)
        if stateful_set is None:
            raise StuckError(f"StatefulSet {self.controllers} does not exist")
        volumes = {each["name"]: each for each in stateful_set["spec"]["template"]["spec"]["volumes"]}
        return str(volumes["config"]["configMap"]["name"])

    def uids(self, objects: Collection[Object]) -> dict[Object, str]:
        """Return the UIDs of those that exist and are not being deleted."""
        found = {each: self.kube.get(*each, self.namespace) for each in objects}
        return {
            key: item["metadata"]["uid"]
            for key, item in found.items()
            if item is not None and "deletionTimestamp" not in item["metadata"]
        }

    def voters(self) -> dict[str, str]:
        """Return the process of each voter that is Ready: its pod's UID and the container's restarts."""
        found = {}
        for pod in self.kube.list("pods", self.namespace, "kraftbridge.dev/role=controller"):
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])
            if ready and "deletionTimestamp" not in pod["metadata"]:
                kafka = next(s for s in pod["status"]["containerStatuses"] if s["name"] == "kafka")
                found[pod["metadata"]["name"]] = f"{pod['metadata']['uid']} {kafka['restartCount']}"
        return found

    def gauges(self, node: int) -> dict[str, int]:
        """Return a controller's leader, log end offset and high watermark; nothing while it does not answer."""
        arguments = ["-n", self.namespace, f"{self.controllers}-{node}", "-c", "kafka", "--", "bash", "-c", ASK_GAUGES]
        try:
            lines = self.kube.kubectl("exec", *arguments, timeout_s=20).splitlines()
        except (CommandFailedError, TimeoutExpired):
            return {}
        values = (line.split() for line in lines)
        return {name.removeprefix("kafka_server_raft_metrics_"): int(float(value)) for name, value in values}

    def high_watermark(self) -> int:
        """Return the highest one of the voters, -1 while none answers."""
        return max((self.gauges(node).get("high_watermark", -1) for node in VOTERS), default=-1)

    def agree(self, nodes: Collection[int] = VOTERS) -> bool:
        """Return whether controllers see one leader among them, and none is behind."""
        seen = [self.gauges(node) for node in nodes]
        if not all(seen):
            return False
        ends = [gauges.get("log_end_offset", -1) for gauges in seen]
        leaders = {gauges.get("current_leader", -1) for gauges in seen}
        return len(leaders) == 1 and leaders <= set(nodes) and min(ends) > 0 and max(ends) - min(ends) <= MAX_LAG

    # ------------------------------------------------------------------------------------------ one deletion

    def delete(self, thing: Thing, rest: Rest) -> Deletion:
        """Delete it, take the way out where there is no other, and wait until everything is whole."""
        self.commands = []
        before, voters, mark = self._view(), self.voters(), self.high_watermark()
        objects = self.objects(thing)
        uids = self.uids(objects)
        if len(uids) != len(objects) or len(voters) != len(VOTERS) or mark < 0:
            raise StuckError(f"before {thing} in {rest}: {uids}, voters {voters}, high watermark {mark}")
        # An event has no fraction of a second.
        watching = Watching(time.time(), before.message)
        backups = {each: self._backup(each) for each in objects if each[0] == "secret"}
        named: float | None = None
        found: list[str] = []
        began = watching.since
        self._type("delete", *self._deletion(thing, objects))
        match thing:
            case Thing.CLAIM:
                self._type("delete", "pod", f"{self.controllers}-{VOTERS[-1]}", "--wait=false")
                named = self._named(watching, lambda view: view.finding("ControllerClaimsLost") is not None)
                found = self._stays_blank(watching, mark)
                began = time.time()
                found += self._replace(watching)
            case Thing.ORIGINALS:
                named = self._named(watching, _originals_lost)
                began = time.time()
                self._restore(backups[objects[0]])
            case Thing.AUTHORITY:
                named = self._named(watching, lambda view: bool(_problem(view)))
                began = time.time()
                self._restore(backups[objects[0]])
        restored = self._until(
            watching,
            lambda _: self._back(objects, uids),
            RESTORED_WITHIN_S if thing is not Thing.CLAIM else WHOLE_WITHIN_S,
            f"{thing} is there again",
        )
        # Right after it the voters of before may still be Ready.
        old = voters if thing is Thing.STATEFUL_SET or (thing is Thing.LISTENER_CONTROLLERS and not rest.paused) else {}
        settled = self._until(
            watching, lambda view: self._settled(view, rest, old), WHOLE_WITHIN_S, f"after {thing} everything is whole"
        )
        after = self.voters()
        self._events(watching)
        deletion = Deletion(
            thing=thing,
            rest=rest,
            commands=tuple(self.commands),
            restored_s=round(restored - began, 1),
            whole_s=round(settled - began, 1) if thing in STOPS_VOTERS else None,
            named_s=None if named is None else round(named - watching.since, 1),
            said=tuple(watching.said),
            high_watermark=(mark, self.high_watermark()),
            voters_restarted=tuple(sorted(name for name in voters if voters[name] != after.get(name))),
            window=(watching.since, time.time()),
            troubles=tuple(found),
        )
        deletion = replace(deletion, troubles=troubles(deletion))
        self.say(f"  {rest}: {thing}: {json.dumps(_short(deletion), ensure_ascii=False)}")
        return deletion

    def _deletion(self, thing: Thing, objects: list[Object]) -> list[str]:
        kind = objects[0][0]
        options = {Thing.ORPHANED: ["--cascade=orphan"], Thing.CLAIM: ["--wait=false"]}.get(thing, [])
        return [kind, *(name for _, name in objects), *options]

    def _back(self, objects: Collection[Object], before: dict[Object, str]) -> bool:
        now = self.uids(objects)
        return all(each in now and now[each] != before[each] for each in objects)

    def _settled(self, view: View, rest: Rest, old: Mapping[str, str]) -> bool:
        """Return whether the migration rests as before, and the quorum is whole, without the processes that had to stop."""
        status = view.status
        controllers = status.get("controllers") or {}
        rolling = "change" in controllers and not rest.paused
        if view.phase != rest or "operation" in status or rolling or view.condition("Stalled")["status"] == "True":
            return False
        lost = view.finding("ControllerClaimsLost") or view.finding("OriginalsLost") or _problem(view)
        if lost or view.condition("RollbackPossible")["status"] != "True":
            return False
        voters = self.voters()
        return len(voters) == len(VOTERS) and not voters.items() & old.items() and self.agree()

    # ------------------------------------------------------------------------------------------ ways out

    def _stays_blank(self, watching: Watching, mark: int) -> list[str]:
        """Watch the voter on its new claim; return what is wrong: it must wait for a person, and the others must go on."""
        name, others = f"{self.controllers}-{VOTERS[-1]}", VOTERS[:-1]
        words = "is blank and formatting is not allowed any more"
        self._until(watching, lambda _: words in self._log(name), WHOLE_WITHIN_S, f"{name} says that it {words}")
        until = time.time() + BLANK_FOR_S
        while time.time() < until:
            watching.look(self._view())
            time.sleep(POLL_S)
        found = []
        if "meta.properties" in self._in_pod(name, "ls /data/kafka 2>/dev/null || true"):
            found.append(f"{name} formatted its blank volume by itself")
        self._until(watching, lambda _: self.agree(others), WHOLE_WITHIN_S, "the other voters are a quorum")
        if self.high_watermark() <= mark:
            found.append("the other voters committed nothing meanwhile")
        return found

    def _replace(self, watching: Watching) -> list[str]:
        """Do what docs/kraft.md says under "Replace a controller"; return what went otherwise."""
        (claim,) = self.objects(Thing.CLAIM)
        uid = self.uids([claim]).get(claim)
        if uid is None:
            raise StuckError(f"{claim} does not exist")
        self._let_format({"id": VOTERS[-1], "claimUID": uid})
        self._until(
            watching,
            lambda view: view.finding("ControllerClaimsLost") is None,
            WHOLE_WITHIN_S,
            "the voter on its new claim has caught up and is recorded",
        )
        config_map = ("configmap", f"{self.controllers}-format")
        self._until(
            watching,
            lambda _: (self.kube.get(*config_map, self.namespace) or {}).get("data", {}).get("word") == "refused",
            NAMED_WITHIN_S,
            "formatting is refused again",
        )
        self._let_format(None)
        recorded = self._view().status["controllers"]["volumeUids"].get(str(VOTERS[-1]))
        return [] if recorded == uid else [f"status.controllers.volumeUids has {recorded}"]

    def _let_format(self, word: Mapping[str, Any] | None) -> None:
        """Let one controller format its blank volume; None takes the word out of the spec."""
        patch = json.dumps({"spec": {"controllers": {"reformat": word}}})
        self._type("patch", "kafkamigration", self.migration.name, "--type", "merge", "-p", patch)

    def _backup(self, each: Object) -> str:
        item = self.kube.get(*each, self.namespace)
        if item is None:
            raise StuckError(f"{each} does not exist")
        kept = {k: v for k, v in item["metadata"].items() if k in ("name", "labels", "annotations")}
        return json.dumps(
            {k: v for k, v in item.items() if k in ("apiVersion", "kind", "type", "data")} | {"metadata": kept}
        )

    def _restore(self, backup: str) -> None:
        self.commands.append("kubectl apply -f backup.yaml")
        self.kube.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=backup)

    # ------------------------------------------------------------------------------------------ watching

    def _type(self, *arguments: str) -> None:
        self.commands.append(f"kubectl {' '.join(arguments)}")
        self.kube.kubectl(*arguments, "-n", self.namespace)

    def _view(self) -> View:
        view = self.migration.view()
        if view is None:
            raise StuckError("the KafkaMigration is gone")
        return view

    def _named(self, watching: Watching, names: Callable[[View], bool]) -> float | None:
        try:
            return self._until(watching, names, NAMED_WITHIN_S, "the status names it")
        except StuckError:
            return None

    def _until(self, watching: Watching, holds: Callable[[View], bool], within_s: float, what: str) -> float:
        """Wait until something holds, and return when; note what the status says meanwhile."""
        deadline = time.time() + within_s
        while True:
            view = self._view()
            watching.look(view)
            if holds(view):
                return time.time()
            if time.time() > deadline:
                raise StuckError(
                    f"not within {within_s:.0f} s: {what}. {view.phase}: {view.message}. {self.kube.troubles(self.namespace)}"
                )
            time.sleep(POLL_S)

    def _events(self, watching: Watching) -> None:
        for event in self.kube.list("events", self.namespace):
            ours = event["involvedObject"]["kind"] == "KafkaMigration" and event.get("reason") in (
                "Alarm",
                "ControllerReplaced",
            )
            if ours and _epoch(event) >= int(watching.since):
                watching.said[f"event {event['reason']}: {event['message']}"] = None

    def _log(self, pod: str) -> str:
        try:
            return self.kube.kubectl("logs", "-n", self.namespace, pod, "-c", "kafka", "--tail=5")
        except CommandFailedError:
            return ""

    def _in_pod(self, pod: str, script: str) -> str:
        return self.kube.kubectl("exec", "-n", self.namespace, pod, "-c", "kafka", "--", "bash", "-c", script)


def _originals_lost(view: View) -> bool:
    return view.finding("OriginalsLost") is not None and view.condition("RollbackPossible")["reason"] == "OriginalsLost"


def _problem(view: View) -> str:
    return str((view.status.get("listenerCertificates") or {}).get("problem") or "")


def _plain(message: str) -> str:
    return re.sub(r"\d+", "", message)


def _epoch(event: dict[str, Any]) -> float:
    at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return float(time.mktime(time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone)


def _short(deletion: Deletion) -> dict[str, Any]:
    shown = ("restored_s", "whole_s", "named_s", "said", "high_watermark", "voters_restarted", "troubles")
    return {name: getattr(deletion, name) for name in shown}
