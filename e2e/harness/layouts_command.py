"""Command line of the layouts: one layout at a time. A layout with a result does not run again unless asked."""

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from e2e.harness import plain_brokers
from e2e.harness.bare import inventory_differences
from e2e.harness.demo import Terminal
from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import (
    CONTROLLERS_IMAGE,
    DOMAIN,
    REPOSITORY,
    CommandFailedError,
    Kube,
    current_kube,
    eventually,
    run,
)
from e2e.harness.layouts import LAYOUTS, RELEASE, ZOOKEEPER, Chart, Layout
from e2e.harness.layouts_page import AUTO, BACK, CHANNEL
from e2e.harness.load import Load, client_impact, longest_stall_began, longest_stalls
from e2e.harness.migration import CLIENTS_CACHE_SECONDS, VERIFIER_IMAGE, Migration, View
from e2e.harness.operator_install import IMAGES, OperatorInstall
from e2e.harness.own_chart import REFUSED, pods, write_final_manifest
from e2e.harness.sole_use import remove_with_migrations, sole_use
from kubernetes.client.exceptions import ApiException
from rich.console import Console

NAMESPACE = "kafka-layouts"
MIGRATION = "shop"
RESULTS = REPOSITORY / "benchmarks/measured/layouts"
ARTIFACTS = REPOSITORY / ".artifacts/layouts"
UNDER_WAY = "Copies of the brokers' pods are started"
REFUSED_AFTER_SECONDS = 60.0
"""Preflight names the same blocking findings for this long: four readings of the survey."""
BY_HAND_SECONDS = 3600.0
"""How long a person has for each: to write the resource, and to get it through."""
PARTS = ("longest_stall_migration_s", "longest_stall_release_s")
ACLS = "create_and_delete_acl"
"""No layout has an authorizer, so no ACL can be made."""

Told = list[tuple[float, str]]
"""What a migration said, and when."""


@dataclass(frozen=True)
class LayoutCluster(ForeignCluster):
    """A cluster of one layout, and the pod for its users' tools."""

    layout: Layout = LAYOUTS[0]
    vendor: Path = Path()

    @property
    def stateful_sets(self) -> dict[str, range]:
        return {name: range(count) for name, count in self.layout.stateful_sets.items()}

    @property
    def bootstrap(self) -> str:
        return self.layout.bootstrap

    @property
    def zookeeper_connect(self) -> str:
        return ZOOKEEPER

    @property
    def placeholders(self) -> dict[str, str]:
        login = json.dumps(self.layout.login) if self.layout.login else ""
        return {"PREFIX": "", "BOOTSTRAP": self.bootstrap, "LOGIN": login, "DOMAIN": DOMAIN}

    def add(self) -> None:
        """Bring up ZooKeeper, the brokers, and the clients' pod."""
        self._apply("zookeeper.yaml", "clients.yaml")
        self.kube.rollout_complete(f"statefulset/{self.zookeeper}", self.namespace, timeout_s=180)
        for name, files in self.layout.secrets.items():
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": files}
            self.kube.apply(json.dumps(body), self.namespace)
        self.install()
        self.kube.kubectl("wait", "-n", self.namespace, "pod/clients", "--for=condition=Ready", "--timeout=120s")

    def install(self) -> None:
        """Install the chart, or apply the manifests, and wait for the brokers."""
        match self.layout.installed:
            case Chart() as chart:
                ARTIFACTS.mkdir(parents=True, exist_ok=True)
                self._values.write_text(json.dumps(chart.values))
                self.kube.helm("install", *self._release(chart))
            case objects:
                self.kube.apply(plain_brokers.as_text(objects), self.namespace)
        self._rolled_out()

    def upgrade(self, work: Path) -> dict[str, Any]:
        """Upgrade the release of a completed migration, first as it was before, then with the final manifest as well.

        Returns
        -------
        What the second upgrade restarted and changed, and what is not as it should be. The first must be refused and restart nothing.
        """
        broken = []
        write_final_manifest(self.kube, self.namespace, work)
        before, templates = self._pods(), self.templates()
        try:
            self._upgrade_as_before()
            broken.append("the release from before the migration was not refused")
        except CommandFailedError as error:
            if REFUSED not in str(error):
                broken.append(f"the release from before the migration: {str(error)[-400:]}")
        if self._pods() != before:
            broken.append("the release from before the migration restarted brokers")
        try:
            self._upgrade_as_told(work)
        except CommandFailedError as error:
            return {"restarted": [], "changed": [], "broken": [*broken, f"the release as told: {str(error)[-600:]}"]}
        if self._pods() != before:
            self._restart_brokers()
        after = self._pods()
        restarted = sorted(
            pod for name in before for pod, uid in after[name].items() if pod != "revision" and before[name][pod] != uid
        )
        return {"restarted": restarted, "changed": differences(templates, self.templates()), "broken": broken}

    def templates(self) -> dict[str, Any]:
        """Return the pod template of each StatefulSet."""
        found = {name: self.kube.get("statefulset", name, self.namespace) for name in self.stateful_sets}
        return {name: each["spec"]["template"] for name, each in found.items() if each is not None}

    def _upgrade_as_before(self) -> None:
        match self.layout.installed:
            case Chart() as chart:
                self.kube.helm("upgrade", *self._release(chart))
            case objects:
                self.kube.apply(plain_brokers.as_text(objects), self.namespace)

    def _upgrade_as_told(self, work: Path) -> None:
        match self.layout.installed:
            case Chart() as chart:
                more = ARTIFACTS / f"{self.layout.name}-on-delete.json"
                more.write_text(json.dumps(chart.on_delete))
                files = [more] + [work / f"values-{chart.values_for}-{name}.yaml" for name in self.stateful_sets]
                options = [word for file in files for word in ("-f", str(file))]
                self.kube.helm("upgrade", *self._release(chart), *options)
            case objects:
                patch = "kustomize-patch.yaml"
                (work / "own.yaml").write_text(plain_brokers.as_text(objects))
                kustomization = {"resources": ["own.yaml"], "patches": [{"path": patch}]}
                (work / "kustomization.yaml").write_text(json.dumps(kustomization))
                self.kube.kubectl("apply", "-n", self.namespace, "-k", str(work))

    @property
    def _values(self) -> Path:
        return ARTIFACTS / f"{self.layout.name}-values.json"

    def _release(self, chart: Chart) -> list[str]:
        return [RELEASE, str(self.vendor / "charts" / chart.folder), "-n", self.namespace, "-f", str(self._values)]

    def _pods(self) -> dict[str, dict[str, str]]:
        return {name: pods(self.kube, self.namespace, name) for name in self.stateful_sets}

    def _restart_brokers(self) -> None:
        """Restart one broker after the other, as the docs tell: the next one when every preferred leader leads again."""
        for pod in self.broker_pods:
            self.kube.kubectl("delete", "pod", pod, "-n", self.namespace)
            eventually(lambda name=pod: self._ready(name), f"pod {pod} is ready again", 120)
            eventually(self._leaders_lead, f"every preferred leader leads again after the restart of {pod}", 180)

    def _ready(self, pod: str) -> bool:
        found = self.kube.get("pod", pod, self.namespace)
        conditions = (found or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def _leaders_lead(self) -> bool:
        return not json.loads(self.run_client("elect_leaders"))["left"]

    def _rolled_out(self) -> None:
        for name in self.stateful_sets:
            self.kube.rollout_complete(f"statefulset/{name}", self.namespace, timeout_s=400)


@dataclass
class Batches:
    """The brokers that were down together."""

    cluster: LayoutCluster
    seen: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Mode that the brokers restarted to, and their ids."""
    killed: str = ""
    """Pod that was killed while its batch restarted."""

    @property
    def missing(self) -> list[str]:
        """What was to be seen in a layout whose brokers restart in batches."""
        if not self.cluster.layout.strategy:
            return []
        return [
            *([] if self.seen else ["no two brokers were down together"]),
            *([] if self.killed else ["none was killed"]),
        ]

    def look(self, view: View) -> None:
        """Note a batch of which several brokers are stopped; kill one of the first that restarts to KRaft."""
        others = self.note(view)
        if others and self.seen[-1][0] == "KRaft" and not self.killed:
            self.killed = others[0]["pod"]
            self.cluster.kube.kubectl(
                "delete",
                "pod",
                self.killed,
                "-n",
                self.cluster.namespace,
                "--grace-period=0",
                "--force",
                "--wait=false",
            )

    def note(self, view: View) -> list[dict[str, Any]]:
        """Note a batch of which several brokers are stopped; return the restarts of it that are followed later."""
        batch = view.status.get("batch") or {}
        others: list[dict[str, Any]] = batch.get("others") or []
        found = ((view.status.get("brokers") or {}).get("mode", ""), tuple(batch.get("brokers", ())))
        if others and found not in self.seen:
            self.seen.append(found)
        return others


def differences(before: Any, after: Any, path: str = "template") -> list[str]:
    """Return where two JSON values differ. Entries of lists are compared by name where they have one, and then in their order."""
    if isinstance(before, list) and all(isinstance(e, dict) and "name" in e for e in [*before, *(after or [])]):
        orders = [[e["name"] for e in side or []] for side in (before, after)]
        before, after = ({e["name"]: e for e in side or []} for side in (before, after))
        if sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]:
            return [f"{path}: the same entries in another order", *differences(before, after, path)]
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        return [d for k in keys for d in differences(before.get(k), after.get(k), f"{path}.{k}")]
    return [] if before == after else [f"{path}: {json.dumps(before)} -> {json.dumps(after)}"]


def main() -> int:
    """Run the layouts without a result; the exit code is 0 if each was migrated without loss, or refused in preflight."""
    arguments = _parse()
    known = {file.stem for file in RESULTS.glob("*.json")}
    wanted = [each for each in LAYOUTS if not arguments.layouts or each.name in arguments.layouts]
    if arguments.auto:
        wanted = [each.automatic for each in wanted]
    anew = arguments.again or arguments.by_hand
    planned = [each for each in wanted if anew or f"{each.name}{_suffix(arguments)}" not in known]
    terminal = Terminal(Console(highlight=False, width=None if sys.stdout.isatty() else 240))
    terminal.say(f"{len(known)} layouts have a result; now: {', '.join(each.name for each in planned) or 'none'}")
    if arguments.plan or not planned:
        return 0
    kube = current_kube()
    bad = 0
    with sole_use(kube, terminal.say):
        for each in planned:
            bad += not _one(each, kube, terminal, arguments)
    return int(bad > 0)


def _one(layout: Layout, kube: Kube, terminal: Terminal, arguments: argparse.Namespace) -> bool:
    cluster = LayoutCluster(kube, NAMESPACE, layout=layout, vendor=arguments.vendor)
    operator, migration = OperatorInstall(kube, NAMESPACE), Migration(kube, NAMESPACE, MIGRATION)
    begin = time.monotonic()
    terminal.say(f"[bold]{layout.name}[/]: {layout.title}")
    try:
        for build in layout.images:
            terminal.step(f"image {build}", partial(run, IMAGES, "--vendor", arguments.vendor, f"layout-{build}"))
        terminal.step("a clean place", lambda: clean(kube, operator))
        kube.claim_namespace(NAMESPACE, "baseline")  # cp-kafka's chart sets no security context
        terminal.step("the operator", operator.install)
        terminal.step("ZooKeeper and the brokers", cluster.add)
        terminal.step("filling it", lambda: cluster.run_client("seed", "--any-cluster"))
        load = Load(cluster)
        terminal.step("the clients", load.start)
        before = json.loads(cluster.run_client("inventory", "--without-acls"))
        templates = cluster.templates()
        _begin(layout, terminal, migration, by_hand=arguments.by_hand)
        told: Told = []
        batches = Batches(cluster)
        view, refused = follow(migration, terminal, arguments, told, load, batches)
        result: dict[str, Any] = {
            "name": layout.name,
            "title": layout.title,
            "phase": view.phase,
            "seconds": round(time.monotonic() - begin),
            "load_average_5_min": round(os.getloadavg()[1], 1),
            **(_channel(view) if arguments.auto else {}),
            **({"batches": batches.seen, "killed": batches.killed} if batches.seen else {}),
        }
        if view.phase == "RolledBack":
            changed = _changed_templates(layout, templates, cluster.templates())
            broken = [*serving(cluster), *(f"after the rollback: {each}" for each in changed)]
            result |= {"outcome": "rolled back", **unharmed(cluster, load, before, broken, told)}
        elif view.phase == "Completed":
            cluster.stop_zookeeper()
            before_release = [*serving(cluster), *batches.missing]
            mark = load.seconds()
            upgrade = _released(cluster, terminal, by_hand=arguments.by_hand)
            broken = [*before_release, *(f"after the upgrade: {problem}" for problem in serving(cluster))]
            broken += upgrade.pop("broken")
            result |= {
                "outcome": "migrated",
                "upgrade": upgrade,
                **unharmed(cluster, load, before, broken, told, mark),
            }
        else:
            result |= _not_migrated(view, refused=refused)
        warnings = [f for f in view.status.get("findings") or [] if f["severity"] != "Blocking"]
        result["warnings"] = sorted({f["code"] for f in warnings})
    except (CommandFailedError, ApiException, RuntimeError, TimeoutError) as error:
        terminal.console.print(f"[red]{type(error).__name__}: {error}[/]", soft_wrap=True, markup=False)
        terminal.console.print(kube.troubles(NAMESPACE), markup=False)
        return False
    finally:
        keep_logs(cluster, operator)
        if not arguments.keep:
            terminal.step("removing everything", lambda: clean(kube, operator))
    terminal.console.print(json.dumps(result, indent=1), markup=False, soft_wrap=True)
    if not arguments.by_hand:
        RESULTS.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result, indent=1, sort_keys=True) + "\n"
        (RESULTS / f"{layout.name}{_suffix(arguments)}.json").write_text(text)
    return not result["broken"]


def _changed_templates(layout: Layout, before: Any, after: Any) -> list[str]:
    """Return where pod templates differ after a rollback, without what it keeps since the former image cannot come back."""
    changed = differences(before, after)
    upgrade = layout.brokers.get("upgrade")
    if upgrade is None:
        return changed
    kept = ["image", "KAFKA_CFG_INTER_BROKER_PROTOCOL_VERSION", *upgrade["env"]]
    return [each for each in changed if each.partition(": ")[0].rpartition(".")[2] not in kept]


def _released(cluster: LayoutCluster, terminal: Terminal, *, by_hand: bool) -> dict[str, Any]:
    """Install the release from before, then the one with the final manifest. With ``--by-hand`` the release is the person's own, so nothing is installed."""
    if by_hand:
        return {"broken": []}
    folder = ARTIFACTS / f"{cluster.layout.name}-final-manifest"
    return terminal.step("the release from before, then with the final manifest", lambda: cluster.upgrade(folder))


def keep_logs(cluster: LayoutCluster, operator: OperatorInstall) -> None:
    """Keep the end of the operator's log, and what each broker has logged since its last start."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / f"{cluster.layout.name}-operator.log").write_text(operator.log(4000))
    for pod in (name.partition(".")[0] for name in cluster.layout.bootstrap.split(",")):
        try:
            text = cluster.kube.kubectl("logs", "-n", cluster.namespace, pod, "-c", cluster.layout.brokers["container"])
        except CommandFailedError as error:
            text = str(error)
        (ARTIFACTS / f"{cluster.layout.name}-{pod}.log").write_text(text)


def _not_migrated(view: View, *, refused: bool) -> dict[str, Any]:
    """Return what preflight refuses, or where the migration is stuck."""
    if refused:
        findings = [{k: f[k] for k in ("code", "object", "reason", "fix")} for f in _blocking(view)]
        return {"outcome": "refused", "findings": findings, "broken": []}
    return {"outcome": "stuck", "message": view.message, "broken": [f"stuck in {view.phase}: {view.message}"]}


def _channel(view: View) -> dict[str, Any]:
    """Return the channel that the operator found."""
    known = view.status.get("channel") or {}
    return {"channel": {name: known[name] for name in CHANNEL if known.get(name)}}


def serving(cluster: LayoutCluster) -> list[str]:
    return [
        f"{check}: {outcome}" for check, outcome in cluster.prove_serving().items() if check != ACLS and outcome != "ok"
    ]


def unharmed(
    cluster: LayoutCluster,
    load: Load,
    before: dict[str, Any],
    broken: list[str],
    told: Told,
    mark: int | None = None,
    *,
    despite_errors: bool = False,
) -> dict[str, Any]:
    """Return the balance of the clients, and in ``broken`` what is wrong with it and with the metadata.

    With ``mark``, where the release begins, the longest stall is told of each part. ``longest_stall_during`` is what the migration said last
    when that stall began. With ``despite_errors`` clients may get errors, which are told; records are kept all the same.
    """
    lines = load.stop()
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / f"{cluster.layout.name}-load.json").write_text(json.dumps({"told": told, "seconds": lines}))
    impact = client_impact(lines)
    parts = dict(zip(PARTS, longest_stalls(lines, mark), strict=True)) if mark is not None else {}
    began = longest_stall_began(lines)
    during = next((words for at, words in reversed(told) if at <= began), "before the migration")
    after = json.loads(cluster.run_client("inventory", "--without-acls"))
    broken = [*broken, *inventory_differences(before, after)]
    fine = impact.keeps_records if despite_errors else impact.unharmed
    broken += [] if fine else [f"clients: {json.dumps(impact.as_json())}"]
    return {"records": impact.acked, "lost": impact.lost, "duplicates": impact.duplicates,
            "longest_stall_s": impact.longest_produce_stall_s, "longest_stall_during": during, **parts,
            **({"errors": impact.errors} if despite_errors else {}), "broken": broken}  # fmt: skip


def clean(kube: Kube, operator: OperatorInstall) -> None:
    if kube.is_ours(NAMESPACE):
        remove_with_migrations(kube, NAMESPACE)
    operator.uninstall()


def manifest(layout: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kraftbridge.dev/v1alpha1",
        "kind": "KafkaMigration",
        "metadata": {"name": MIGRATION, "namespace": NAMESPACE},
        "spec": {
            "target": "KRaftBrokers",
            "zookeeper": {"connect": ZOOKEEPER},
            "brokers": {
                "statefulSets": [{"name": name} for name in layout.stateful_sets],
                "bootstrapServers": layout.bootstrap,
                **layout.brokers,
            },
            "controllers": {
                "replicas": 3,
                "firstNodeId": 3000,
                "image": CONTROLLERS_IMAGE,
                "listener": {"securityProtocol": "PLAINTEXT", **layout.listener},
                "superUsers": list(layout.super_users),
                **layout.controllers,
                "storage": {"size": "1Gi"},
                "heapOptions": "-Xmx192m",
                "resources": {"requests": {"cpu": "50m", "memory": "384Mi"}},
            },
            "verification": {"runner": "Job", "image": VERIFIER_IMAGE},
            "strategy": {"addressCacheSeconds": CLIENTS_CACHE_SECONDS, **layout.strategy},
            **({"rollback": {"giveUpFormerImage": True}} if "upgrade" in layout.brokers else {}),
            "preflight": {"accepted": [{"code": "ControllerListenerPlaintext"}, {"code": "SuperUserAnonymous"}]},
        },
    }


def _suffix(arguments: argparse.Namespace) -> str:
    return BACK if arguments.back else AUTO if arguments.auto else ""


def _begin(layout: Layout, terminal: Terminal, migration: Migration, *, by_hand: bool) -> None:
    """Create the KafkaMigration, or say what is there and wait for the one that a person writes."""
    if not by_hand:
        migration.kube.apply(json.dumps(manifest(layout)), NAMESPACE)
        return
    terminal.say(
        f"[bold]Yours[/]: StatefulSets {', '.join(layout.stateful_sets)}; ZooKeeper {ZOOKEEPER}; brokers {layout.bootstrap}; "
        f"images {CONTROLLERS_IMAGE} and {VERIFIER_IMAGE}"
    )
    terminal.say(f"Create KafkaMigration {NAMESPACE}/{MIGRATION}. This run watches it to Completed or RolledBack")
    eventually(migration.view, f"somebody creates KafkaMigration {NAMESPACE}/{MIGRATION}", BY_HAND_SECONDS)


def follow(
    migration: Migration, terminal: Terminal, arguments: argparse.Namespace, told: Told, load: Load, batches: Batches
) -> tuple[View, bool]:
    """Follow it to ``Completed``, or until preflight has judged and blocks, or until the time is up.

    With ``--back``, ask for the way back as soon as one broker runs KRaft, and follow it to ``RolledBack``. With ``--by-hand``, ask for nothing.
    Adds what the migration says to ``told``, and the brokers that are down together to ``batches``.

    Returns
    -------
    The last view, and whether preflight refuses the layout: it names the same findings for `REFUSED_AFTER_SECONDS`. One failed reading is no refusal.
    """
    by_hand, back = arguments.by_hand, arguments.back
    deadline = time.monotonic() + (BY_HAND_SECONDS if by_hand else arguments.limit_seconds)
    asked = by_hand
    view = eventually(migration.view, "the migration is there", 30)
    blocking: frozenset[tuple[str, str]] = frozenset()
    since = time.monotonic()
    while time.monotonic() < deadline:
        view = migration.view() or view
        terminal.change(view)
        batches.look(view)
        if not back:  # a reassignment would hold the way back up
            load.look(view)
        if not told or told[-1][1] != f"{view.phase}: {view.message}":
            told.append((time.time(), f"{view.phase}: {view.message}"))
        if view.phase in ("Completed", "RolledBack") and view.condition("Ready")["status"] == "True":
            return view, False
        if back and not asked and _one_runs_kraft(view):
            asked = True
            terminal.say(f"[green]$ {migration.set_target('ZooKeeper')}[/]")
        judged = view.phase == "Preflight" and view.blocked and UNDER_WAY not in view.message
        found = frozenset((f["code"], f["object"]) for f in _blocking(view)) if judged else frozenset()
        if found != blocking:
            blocking, since = found, time.monotonic()
        if blocking and not by_hand and time.monotonic() - since >= REFUSED_AFTER_SECONDS:
            return view, True
        if view.phase == "AwaitingFinalization" and view.awaits_user and not asked:
            asked = True
            terminal.say(f"[green]$ {migration.set_target('KRaft')}[/]")
        time.sleep(0.5)
    return view, False


def _one_runs_kraft(view: View) -> bool:
    """Return whether at least one broker runs KRaft, and brokers are still rolled; the mode before was ``Migration``."""
    brokers = view.status.get("brokers") or {}
    return view.phase == "RollingBrokers" and brokers.get("mode") == "KRaft" and brokers.get("inMode", 0) > 0


def _blocking(view: View) -> list[dict[str, Any]]:
    return [f for f in view.status.get("findings") or [] if f["severity"] == "Blocking" and not f.get("accepted")]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.layouts", description=__doc__)
    parser.add_argument(
        "layouts", nargs="*", choices=[[], *(each.name for each in LAYOUTS)], help="only these; all by default"
    )
    parser.add_argument("--vendor", type=Path, required=True, help="folder with the vendors' charts and images")
    parser.add_argument("--again", action="store_true", help="also run layouts that have a result")
    variants = parser.add_mutually_exclusive_group()
    variants.add_argument(
        "--back", action="store_true", help="a way back from RollingBrokers instead of the whole migration"
    )
    variants.add_argument("--auto", action="store_true", help="with configStyle: Auto instead of what the docs tell")
    variants.add_argument(
        "--by-hand", action="store_true", help="you write the KafkaMigration and drive it; no result is kept"
    )
    parser.add_argument("--plan", action="store_true", help="only show what is missing")
    parser.add_argument("--limit-seconds", type=float, default=1200, help="time limit of one migration")
    parser.add_argument("--keep", action="store_true", help="leave the cluster for a look")
    return parser.parse_args()
