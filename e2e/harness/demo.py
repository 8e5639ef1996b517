"""The demonstration: a user's ZooKeeper-based Kafka cluster with active clients, and one KafkaMigration to KRaft."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from e2e.harness.bare import inventory_differences
from e2e.harness.foreign import ForeignCluster, Style
from e2e.harness.kube import (
    CLUSTER,
    KAFKA_IMAGE,
    REPOSITORY,
    CommandFailedError,
    Kube,
    NotOursError,
    current_kube,
    eventually,
)
from e2e.harness.load import ClientImpact, Load, client_impact
from e2e.harness.matrix import Column, Fault
from e2e.harness.migration import (
    ACCEPTED,
    VERIFIER_IMAGE,
    Migration,
    View,
    add_hold,
    controllers_name,
    manifest,
)
from e2e.harness.operator_install import IMAGES, OperatorInstall
from e2e.harness.security import Security
from e2e.harness.sole_use import remove_with_migrations, sole_use
from e2e.harness.striker import Striker
from e2e.harness.strikes import Strikes
from e2e.harness.summary import as_json, broken_promises, print_summary, verdicts
from kubernetes.client.exceptions import ApiException
from rich.console import Console
from rich.markup import escape

MIGRATION = "demo"
KIND_CONTEXT = "kind-"
"""The prefix that kind gives to the context of a cluster."""
ARTIFACTS = REPOSITORY / ".artifacts/demo"
# Nothing that the operator waits for by itself keeps it blocked for so long.
BLOCKED_TIMEOUT_S = 120
KAFKA_SAYS = "Kafka, in the rehearsal"
"""In a finding that a broker of the rehearsal has made."""
GIVE_UP = "giveUpFormerImage"
"""Field of ``spec.rollback``."""
FORMER_RELEASES = (REPOSITORY / "e2e/images/kafka-release/releases").read_text().split()
KAFKA4_RELEASES = (REPOSITORY / "e2e/images/kafka-release/kafka4-releases").read_text().split()
KAFKA4 = "4"
"""In ``--to``: the newest of them."""
FEATURES_OF_KAFKA4 = {"metadata.version", "group.version", "transaction.version", "eligible.leader.replicas.version"}
"""Features that every release of Kafka 4 can raise above what 3.9 has."""
CLIENTS_UNKNOWN = "Kafka4ClientsUnknown"
"""What a user accepts who knows his clients: the demo's brokers show no metrics."""
# Where the operator is killed by --chaos: in every phase in which it does something.
CHAOS = tuple(
    c for c in Column if c not in (Column.PREFLIGHT, Column.COPY, Column.ROLLING_BACK) and not c.is_of_upgrade
)


class Trap(StrEnum):
    """What the demonstration plants, to show that it is refused."""

    QUOTA = "quota"
    """A quota in ZooKeeper with which Kafka sticks after the takeover."""
    DYNAMIC_SETTINGS = "dynamic-settings"
    """A dynamic setting that Kafka refuses at a start in KRaft mode, with all others."""


class BlockedError(Exception):
    """The migration does not continue without help."""


@dataclass
class Terminal:
    """The output: a line when a step begins, its duration when it ends, and a line for each change of a migration."""

    console: Console
    begin: float = field(default_factory=time.monotonic)
    steps: dict[str, float] = field(default_factory=dict)
    shown: tuple[str, ...] = ()

    def say(self, text: str) -> None:
        passed = int(time.monotonic() - self.begin)
        self.console.print(f"[dim]{passed // 60:3d}:{passed % 60:02d}[/]  {text}", soft_wrap=True)

    def step(self, what: str, act: Callable[[], Any]) -> Any:
        """Do something, say what and how long it took."""
        self.say(f"[bold]{what}[/]")
        begin = time.monotonic()
        result = act()
        self.steps[what] = round(time.monotonic() - begin, 1)
        return result

    def change(self, view: View) -> None:
        """Print the phase and message of a migration if they differ from the last line printed."""
        now = (view.phase, view.brokers, _without_numbers(view.message))
        if now == self.shown:
            return
        self.shown = now
        room = max(40, self.console.width - 45)
        message = view.message if len(view.message) <= room else view.message[: room - 1] + "…"
        self.say(f"[cyan]{view.phase:20}[/] brokers {view.brokers or '-':4} {message}")


@dataclass
class Story:
    """One run of the demonstration."""

    kube: Kube
    cluster: ForeignCluster
    operator: OperatorInstall
    migration: Migration
    terminal: Terminal
    arguments: argparse.Namespace
    planted: str = ""
    """Znode of the planted trap, or the setting with its value."""

    def prepare(self) -> None:
        """Bring up what the migration needs: operator, Spark operator, the cluster and its clients."""
        step, cluster = self.terminal.step, self.cluster
        step("removing what an earlier run may have left", lambda: clean(self.kube, self.operator, cluster))
        step(f"namespace {cluster.namespace}", lambda: self.kube.claim_namespace(cluster.namespace))
        if self.operator.ours:
            if self.arguments.runner == "SparkApplication":
                step("Kubeflow's Spark operator", self.operator.install_spark_operator)
            step(
                f"helm upgrade --install kraftbridge {self.operator.chart or 'helm/kraftbridge'}", self.operator.install
            )
        (ARTIFACTS / "brokers.yaml").write_text(cluster.brokers_manifest())
        step(f"ZooKeeper (1) and Kafka (3 brokers, two log directories each, {cluster.style} style)", cluster.add)
        seeded = step("filling it: topics, configs, SCRAM users, ACLs, quotas, a reassignment", cluster.seed)
        self.terminal.say(f"{seeded['topics']} topics, {seeded['partitions']} partitions")

    def apply(self) -> None:
        """Apply the one resource, and show it."""
        terminal = self.terminal
        resource = manifest(
            self.cluster,
            MIGRATION,
            runner=self.arguments.runner,
            address_cache_seconds=self.arguments.hold,
            rehearsal=True,
            accepted=() if self.arguments.by_hand else ACCEPTED,
            verifier_image="" if self.arguments.chart else VERIFIER_IMAGE,
            pods=json.loads(self.arguments.pods),
        )
        text = yaml.safe_dump(resource, sort_keys=False)
        terminal.say("[bold]one KafkaMigration[/], target KRaftBrokers (the last state that can be rolled back):")
        terminal.console.print(text, style="dim", markup=False, soft_wrap=True)
        (ARTIFACTS / "kafkamigration.yaml").write_text(text)
        self.kube.apply(text, self.cluster.namespace)
        if self.cluster.security is Security.GENERATED_LOGINS:
            self.give_logins()
        elif self.cluster.secured and not self.cluster.secured.issued:
            # The names of the controllers contain the resource's UID: nobody can issue their certificate before.
            name = controllers_name(self.kube, self.cluster.namespace, MIGRATION)
            terminal.say(f"the Secret of the controllers' listener, now that their name is known: {name}")
            self.cluster.apply_secrets(self.cluster.secured.listener_secret(name))

    def give_logins(self) -> None:
        """Do what a user does with the brokers' login that the operator issues, before anything else begins."""
        terminal, migration = self.terminal, self.migration

        def issued() -> str:
            view = migration.view()
            return (view.status.get("listenerCertificates") or {}).get("brokersSecret", "") if view else ""

        secret = terminal.step(
            "the operator issues certificates and logins", lambda: eventually(issued, "the Secrets", 60)
        )
        terminal.step(
            f"the brokers mount Secret {secret}, and restart once", lambda: self.cluster.trust_controllers(secret)
        )
        terminal.say(f"[green]$ {migration.set_target('KRaftBrokers')}[/]")

    def follow(self, load: Load) -> View:
        """Follow it to AwaitingFinalization, set the target to KRaft, follow it to the end."""
        terminal, migration = self.terminal, self.migration
        striker = Striker(
            Strikes(self.cluster, self.operator, migration), planned_strikes(self.arguments), terminal.say
        )
        asked = given_up = False
        trapped = self.arguments.trap is not None
        blocked_since: float | None = None
        for view in migration.follow(self.arguments.within):
            terminal.change(view)
            striker.look(view)
            load.look(view)
            if view.phase == "AwaitingFinalization" and view.awaits_user and not asked and not striker.open(view.phase):
                asked = True
                terminal.say("[bold]the operator waits for its user: a finalization cannot be rolled back.[/]")
                self.finalize()
            if view.phase == "Completed" and view.condition("Ready")["status"] == "True":
                striker.undo_all()
                if striker.plan:
                    raise BlockedError(f"the migration is complete, and these faults were never done: {striker.plan}")
                return view
            if GIVE_UP in view.message and not given_up:
                given_up = True
                self.give_up_former_image()
            if trapped and (finding := self.refusal(view)) is not None:
                trapped = False
                self.mend(view, finding)
                blocked_since = None
                continue
            if trapped and view.phase not in ("", "Preflight"):
                raise BlockedError("the planted trap was not found: preflight has passed")
            blocked_since = self.still_blocked(view, blocked_since)
        raise AssertionError("following ends with Completed or an exception")

    def still_blocked(self, view: View, since: float | None) -> float | None:
        """Return since when the migration is blocked, None if it is not.

        Raises
        ------
        BlockedError
            It has been blocked for too long, and nobody is there who could help.
        """
        if not view.blocked:
            return None
        since = since or time.monotonic()
        if not self.arguments.by_hand and time.monotonic() - since > BLOCKED_TIMEOUT_S:
            findings = "".join(f"\n  {finding}" for finding in view.blocking_findings)
            raise BlockedError(f"blocked in phase {view.phase} for {BLOCKED_TIMEOUT_S} s: {view.blocked}{findings}")
        return since

    def give_up_former_image(self) -> None:
        """Give the word that the operator waits for before a broker runs the protocol of the new release."""
        if not self.arguments.by_hand:
            self.terminal.say(
                "[bold]the operator waits for its user: the former release cannot come back after this.[/]"
            )
            self.terminal.say(f"[green]$ {self.migration.patch({'spec': {'rollback': {GIVE_UP: True}}})}[/]")

    def finalize(self) -> None:
        """Set the target KRaft, or leave that to the user of the demonstration."""
        terminal, namespace = self.terminal, self.cluster.namespace
        if self.arguments.by_hand:
            terminal.say(f"It is your decision: [green]$ kubectl kraftbridge finalize {MIGRATION} -n {namespace}[/]")
        else:
            terminal.say(f"The demo sets the target: [green]$ {self.migration.set_target('KRaft')}[/]")

    def refusal(self, view: View) -> dict[str, Any] | None:
        """Return the finding about the planted trap, once Kafka has refused it in the rehearsal."""
        if self.arguments.trap is Trap.QUOTA:
            return view.finding("RehearsalFails")
        found = view.finding("DynamicSettingsRefused")
        return found if found is not None and KAFKA_SAYS in found["reason"] else None

    def mend(self, view: View, finding: dict[str, Any]) -> None:
        """Show how the planted trap was refused, and mend it as the finding says."""
        self.terminal.say(f"[bold]refused[/], with nothing touched: {finding['code']}: {escape(finding['reason'])}")
        if self.arguments.trap is Trap.QUOTA:
            self.mend_quota(view)
        else:
            self.add_static_lines(finding)

    def add_static_lines(self, finding: dict[str, Any]) -> None:
        """Let the operator's overlay carry the static lines that the finding names: preflight then goes on by itself."""
        lines = static_lines(finding["fix"])
        name, _, value = self.planted.partition("=")
        if lines != {name: value}:
            raise BlockedError(f"the finding names the static lines {lines}, and {self.planted} was planted")
        self.terminal.say("Mended, as the finding says, with a static line in the operator's overlay:")
        self.terminal.say(f"[green]$ {self.migration.patch({'spec': {'brokers': {'staticSettings': lines}}})}[/]")

    def mend_quota(self, view: View) -> None:
        """Correct the znode as the finding says, and ask for another rehearsal."""
        terminal = self.terminal
        mends = view.rehearsal.get("mends") or []
        if [mend["znode"] for mend in mends] != [self.planted]:
            raise BlockedError(f"the rehearsal names {mends}, and {self.planted} was planted")
        terminal.say(f"{mends[0]['znode']}: {mends[0]['problem']}. Mended, as the finding says:")
        terminal.console.print(f"       $ {mends[0]['command']}", style="green", markup=False, soft_wrap=True)
        self.cluster.mend_quota()
        terminal.say(f"[green]$ {self.migration.rehearse_again()}[/]")

    def leave_zookeeper(self) -> dict[str, str]:
        """Do what a user does after ``Completed``: check that ZooKeeper is unused, stop it, and use the cluster."""
        terminal, cluster = self.terminal, self.cluster
        with_session = cluster.pods_with_zookeeper_session()
        if with_session:
            raise BlockedError(f"these pods still have a ZooKeeper session, so it must not be stopped: {with_session}")
        terminal.say("no pod of this namespace has a ZooKeeper session; stopping it, as its user would:")
        terminal.say(f"[green]$ kubectl scale -n {cluster.namespace} statefulset/{cluster.zookeeper} --replicas=0[/]")
        cluster.stop_zookeeper()
        return terminal.step("using the cluster in every way, without ZooKeeper", cluster.prove_serving)

    def go_to_kafka4(self, release: str) -> View:
        """Do what a user does who wants Kafka 4, follow it to its rest there, and further as the command line asks."""
        terminal, migration, image = self.terminal, self.migration, image_of(release)
        spec: dict[str, Any] = {"target": "Kafka4", "kafka4": {"image": image}}
        if self.arguments.by_hand:
            terminal.say(f"It is your decision, and your finding {CLIENTS_UNKNOWN} to accept: {json.dumps(spec)}")
        else:
            terminal.say(f"[bold]on to Kafka {release}[/], whose way back stays open until a feature is raised:")
            migration.accept(CLIENTS_UNKNOWN)
            terminal.say(f"[green]$ {migration.patch({'spec': spec})}[/]")
        view = terminal.step(f"controllers, then brokers restart with {image}", lambda: self.rest_in("Kafka4"))
        if others := self.without_image(view, image):
            raise BlockedError(f"at rest with Kafka {release}, and these pods have another image: {others}")
        if self.arguments.features:
            version = ".".join(release.split(".")[:2])
            terminal.say(f"[green]$ {migration.patch({'spec': {'kafka4': {'metadataVersion': version}}})}[/]")
            view = terminal.step(
                "the features are raised, one by one", lambda: self.rest_in("Kafka4", leavable="False")
            )
            raised = {
                each["name"] for each in view.resource["status"]["kafka4Leg"]["features"] if each.get("finishedAt")
            }
            if missing := sorted(FEATURES_OF_KAFKA4 - raised):
                raise BlockedError(f"at rest with Kafka {release}, and these features were not raised: {missing}")
        if self.arguments.back:
            terminal.say(f"[green]$ {migration.set_target('KRaft')}[/]")
            view = terminal.step("brokers, then controllers go back", lambda: self.rest_in("Completed"))
            if others := [pod for pod in self.pods_of_kafka(view) if pod not in self.without_image(view, image)]:
                raise BlockedError(f"back from Kafka {release}, and these pods have its image: {others}")
        return view

    def rest_in(self, phase: str, leavable: str = "") -> View:
        """Follow the migration until it rests in a phase, with what its status then says of the way back."""
        blocked_since: float | None = None
        for view in self.migration.follow(self.arguments.within):
            self.terminal.change(view)
            ready, way_back = view.condition("Ready"), view.condition("Kafka4Leavable")
            seen = ready.get("observedGeneration") == view.resource["metadata"]["generation"]
            if (
                view.phase == phase
                and seen
                and ready["status"] == "True"
                and way_back["status"] == (leavable or way_back["status"])
            ):
                return view
            blocked_since = self.still_blocked(view, blocked_since)
        raise AssertionError("following ends with the phase or an exception")

    def pods_of_kafka(self, view: View) -> dict[str, list[str]]:
        """Return the images of every pod of brokers and controllers, by its name."""
        controllers = controllers_name(self.kube, self.cluster.namespace, view.resource["metadata"]["name"])
        sets = (*self.cluster.stateful_sets, controllers)
        return {
            pod["metadata"]["name"]: [container["image"] for container in pod["spec"]["containers"]]
            for pod in self.kube.list("pods", self.cluster.namespace)
            if pod["metadata"]["name"].rpartition("-")[0] in sets
        }

    def without_image(self, view: View, image: str) -> list[str]:
        """Return the pods of brokers and controllers in which no container has an image."""
        return [pod for pod, images in self.pods_of_kafka(view).items() if image not in images]

    def run(self) -> int:
        """Run all steps; return the exit code."""
        terminal, cluster = self.terminal, self.cluster
        self.prepare()
        load = Load(cluster)
        terminal.step("the clients: producers, consumers, and what they watch, from now to the end", load.start)
        if self.arguments.trap is Trap.DYNAMIC_SETTINGS:
            self.planted = terminal.step(
                "planting a trap: a thread pool of more than double its static size", cluster.plant_dynamic_settings
            )
        before = cluster.inventory()
        if self.arguments.trap is Trap.QUOTA:
            self.planted = terminal.step("planting a trap: a quota that Kafka does not know", cluster.plant_quota)
        begin = time.monotonic()
        self.apply()
        view = self.follow(load)
        migration_s = time.monotonic() - begin
        serving = self.leave_zookeeper()
        last = view
        if release := self.arguments.kafka4:
            last = self.go_to_kafka4(release)
            serving |= {
                f"{check}, after Kafka {release}": outcome
                for check, outcome in terminal.step("using the cluster once more", cluster.prove_serving).items()
            }
        differences = inventory_differences(before, cluster.inventory())
        lines = terminal.step("stopping the clients, after they have read everything", load.stop)
        impact = client_impact(lines)
        broken = broken_promises(view, impact, serving, differences)
        broken += [
            f"the last verification before {gate} says {verdict}" for gate, verdict in inconsistent(last).items()
        ]
        view = last
        write_artifacts(
            view, impact, lines, broken,
            serving=serving, differences=differences, migration_wall_s=round(migration_s, 1), steps=terminal.steps,
            style=cluster.style.value, chaos=[f"{f}@{c}" for c, faults in planned_strikes(self.arguments).items() for f in faults], runner=self.arguments.runner, address_cache_s=self.arguments.hold,
        )  # fmt: skip
        terminal.console.print()
        print_summary(terminal.console, view, impact, lines, broken)
        terminal.say(f"everything is in {ARTIFACTS.relative_to(REPOSITORY)}")
        terminal.say("[red]NOT as promised[/]" if broken else "[green]as promised[/]")
        return 1 if broken else 0


def image_of(release: str) -> str:
    """Return the image of a release of Kafka in the cluster."""
    return f"{KAFKA_IMAGE.partition(':')[0]}:{release}"


def inconsistent(view: View) -> dict[str, str]:
    """Return what the last verification before a gate says, where that is not that everything is the same."""
    last = {
        verdict.gate: verdict.verdict for verdict in verdicts(view) if verdict.gate.startswith(("Kafka4", "Leaving"))
    }
    return {gate: verdict for gate, verdict in last.items() if verdict != "Consistent"}


def static_lines(fix: str) -> dict[str, str]:
    """Return the static settings that the fix of a finding ``DynamicSettingsRefused`` names."""
    named = re.search(r"static line (.+?) \(", fix)
    if named is None:
        return {}
    return dict(line.split("=", 1) for line in named[1].split(", "))


def planned_strikes(arguments: argparse.Namespace) -> dict[Column, list[Fault]]:
    """Return what the command line asks for."""
    planned = {column: [Fault.OPERATOR_KILLED] for column in CHAOS if arguments.chaos == "operator-restart"}
    for fault, column in arguments.strike:
        planned.setdefault(column, []).append(fault)
    return planned


def strike(text: str) -> tuple[Fault, Column]:
    """Return a fault and when it is done, from ``fault@Phase``."""
    fault, _, column = text.partition("@")
    return Fault(fault), Column(column)


def clean(kube: Kube, operator: OperatorInstall, cluster: ForeignCluster) -> None:
    """Remove the objects of a demonstration, however it ended. Objects that it did not create are refused."""
    if kube.is_ours(cluster.namespace) is False:
        kube.remove_namespace(cluster.namespace)  # raises, and says why
    if kube.is_ours(cluster.namespace):
        remove_with_migrations(kube, cluster.namespace)
    operator.uninstall()


def bring_up(terminal: Terminal, *, operator_too: bool, releases: tuple[str, ...] = ()) -> Kube:
    """Return the cluster to use. For the embedded cluster, start it, build the images and load them."""
    context = os.environ.get("KUBE_CONTEXT", "")
    if context.startswith(KIND_CONTEXT):
        name = context.removeprefix(KIND_CONTEXT)
        terminal.step(f"images, loaded into kind cluster {name}", lambda: _show(IMAGES, "--kind", name))
        return current_kube()
    if context:
        terminal.say(f"using kube context {context}; its nodes must have the images localhost/kraftbridge-*")
        return current_kube()
    # Their own output is the progress that a long first build needs.
    terminal.step("the embedded Kubernetes", lambda: _show(CLUSTER, "up"))
    names = [] if operator_too else ["kafka", "clients", "spark-operator"]
    terminal.step("images", lambda: _show(IMAGES, *names))
    for release in filter(None, releases):
        terminal.step(f"image of Kafka {release}", partial(_show, IMAGES, f"kafka-{release}"))
    return current_kube()


def write_artifacts(
    view: View, impact: ClientImpact, lines: list[dict[str, Any]], broken: list[str], **more: Any
) -> None:
    """Write the summary, the resource as it was in the end, and the load's lines."""
    (ARTIFACTS / "summary.json").write_text(json.dumps(as_json(view, impact, lines, broken, **more), indent=1))
    (ARTIFACTS / "kafkamigration-final.json").write_text(json.dumps(view.resource, indent=1))
    (ARTIFACTS / "load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def keep_evidence(story: Story, error: Exception) -> None:
    """Write the state of pods, events and logs to files after a failure."""
    terminal = story.terminal
    terminal.console.print(f"[red]{type(error).__name__}: {error}[/]", soft_wrap=True)
    with suppress(CommandFailedError):
        # What a run elsewhere leaves to read is often its last lines only.
        terminal.console.print(story.kube.troubles(story.cluster.namespace), markup=False, soft_wrap=True)
    evidence: dict[str, Callable[[], str]] = {
        "operator.log": lambda: story.operator.log(5000),
        "pods.txt": lambda: story.kube.kubectl("get", "pods", "-A", "-o", "wide"),
        "events.txt": lambda: story.kube.kubectl(
            "get", "events", "-n", story.cluster.namespace, "--sort-by=.lastTimestamp"
        ),
        "kafkamigration-failed.json": lambda: (
            json.dumps(view.resource, indent=1) if (view := story.migration.view()) else ""
        ),
        "load.jsonl": lambda: "".join(json.dumps(line) + "\n" for line in Load(story.cluster).lines()),
    }
    for name, read in evidence.items():
        try:
            (ARTIFACTS / name).write_text(read())
        except (CommandFailedError, ApiException, OSError, ValueError) as trouble:
            (ARTIFACTS / name).write_text(f"could not be read: {trouble}\n")
    terminal.say(f"evidence is in {ARTIFACTS.relative_to(REPOSITORY)}: {', '.join(evidence)}")


def _show(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], check=False)
    if done.returncode:
        raise CommandFailedError(f"{' '.join(str(part) for part in command)}: exit code {done.returncode}")


def _without_numbers(text: str) -> str:
    """Return a message without its numbers, so that a countdown prints only once."""
    return "".join(character for character in text if not character.isdigit())


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument(
        "--style", type=Style, choices=list(Style), default=Style.ENV, help="how brokers are configured"
    )
    parser.add_argument("--runner", choices=("SparkApplication", "Job"), default="SparkApplication")
    add_hold(parser)
    parser.add_argument(
        "--pods", default="{}", metavar="JSON", help='spec.pods, such as \'{"labels": {"team": "shop"}}\''
    )
    parser.add_argument(
        "--secured",
        type=Security,
        choices=list(Security),
        help="SASL or issued certificates at the controllers' listener, or certificates or logins at every connection (Env style)",
    )
    parser.add_argument(
        "--from",
        dest="release",
        choices=FORMER_RELEASES,
        default="",
        help="the brokers run a former release of Kafka; the migration brings them to 3.9 first",
    )
    parser.add_argument(
        "--to",
        dest="kafka4",
        choices=(KAFKA4, *KAFKA4_RELEASES),
        default="",
        help=f"go on to a release of Kafka 4 after the migration; {KAFKA4} is {KAFKA4_RELEASES[-1]}",
    )
    onward = parser.add_mutually_exclusive_group()
    onward.add_argument("--back", action="store_true", help="with --to: go back to 3.9 again")
    onward.add_argument(
        "--features", action="store_true", help="with --to: raise the features, which ends the way back"
    )
    parser.add_argument("--two-sets", action="store_true", help="the last broker has a StatefulSet of its own")
    parser.add_argument("--chaos", choices=("operator-restart",), help="delete the operator's pod once in every phase")
    parser.add_argument(
        "--strike",
        type=strike,
        action="append",
        default=[],
        metavar="FAULT@PHASE",
        help="do a fault of the matrix in a phase",
    )
    parser.add_argument(
        "--trap",
        type=Trap,
        choices=tuple(Trap),
        help="plant metadata with which Kafka sticks after the takeover, or dynamic settings that it drops in KRaft "
        "mode; they are refused, then mended",
    )
    parser.add_argument(
        "--namespace", default="kafka-demo", help="made for the demo, and removed with all that is in it"
    )
    parser.add_argument(
        "--installed", action="store_true", help="use the operators that are installed; they must serve the namespace"
    )
    parser.add_argument(
        "--chart", default="", metavar="oci://…", help="install this released chart with the images that it names"
    )
    parser.add_argument(
        "--by-hand", action="store_true", help="you accept the findings and finalize; the demo waits for you"
    )
    parser.add_argument(
        "--within", type=int, default=2400, metavar="SECONDS", help="give up a migration after this time"
    )
    parser.add_argument("--keep", action="store_true", help="leave cluster and operator running at the end")
    parser.add_argument("--clean", action="store_true", help="only remove what an earlier demo left")
    arguments = parser.parse_args()
    if (arguments.back or arguments.features) and not arguments.kafka4:
        parser.error("--back and --features are about Kafka 4: add --to")
    if arguments.kafka4 == KAFKA4:
        arguments.kafka4 = KAFKA4_RELEASES[-1]
    if arguments.secured and arguments.style is not Style.ENV:
        parser.error("--secured is for brokers of style Env")
    if arguments.secured and arguments.trap:
        parser.error("--trap writes to a cluster that asks for no login")
    return arguments


def main() -> int:
    """Run the demo; the exit code is 0 only if everything is as promised."""
    arguments = parse()
    # What is no terminal has no width: 80 columns would cut the messages short.
    terminal = Terminal(Console(highlight=False, width=None if sys.stdout.isatty() else 160))
    if not arguments.clean:
        shutil.rmtree(ARTIFACTS, ignore_errors=True)
        ARTIFACTS.mkdir(parents=True)
    kube = (
        current_kube()
        if arguments.clean
        else bring_up(
            terminal,
            operator_too=not (arguments.installed or arguments.chart),
            releases=(arguments.release, arguments.kafka4),
        )
    )
    story = Story(
        kube,
        ForeignCluster(
            kube,
            arguments.namespace,
            arguments.style,
            security=arguments.secured,
            release=arguments.release,
            split=arguments.two_sets,
        ),
        OperatorInstall(kube, arguments.namespace, ours=not arguments.installed, chart=arguments.chart),
        Migration(kube, arguments.namespace, MIGRATION),
        terminal,
        arguments,
    )
    try:
        with sole_use(kube, terminal.say, remove=not arguments.installed):
            return _tell(story)
    except (NotOursError, CommandFailedError) as error:
        terminal.console.print(f"[red]{error}[/]", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        terminal.say("interrupted; the next run removes what is left (or: python -m e2e.demo --clean)")
        return 130


def _tell(story: Story) -> int:
    terminal, arguments = story.terminal, story.arguments
    if arguments.clean:
        clean(story.kube, story.operator, story.cluster)
        return 0
    try:
        code = story.run()
    except (CommandFailedError, BlockedError, TimeoutError, RuntimeError, ApiException) as error:
        keep_evidence(story, error)
        code = 1
    if not arguments.keep:
        terminal.step("removing the cluster and the operator", lambda: clean(story.kube, story.operator, story.cluster))
    return code
