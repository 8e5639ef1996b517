"""Two releases of the same name on a real API server: each has its namespaces, and neither touches or needs the other.

The chart is copied with a group of its own, as in ``conftest``. No operator runs: its pods find no node.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.conftest import CHART
from tests.support.observations import spec_document

from .conftest import SOMEBODY, Cluster, eventually

GROUP = "two-releases.kraftbridge.dev"
CRD = f"kafkamigrations.{GROUP}"
RELEASE = "kb"
ONE, OTHER = "one", "other"
RELEASES = (ONE, OTHER)
NOBODYS = "chart-test-nobodys"
"""A namespace of neither release."""
KINDS = ("clusterrole", "clusterrolebinding", "validatingadmissionpolicy", "validatingadmissionpolicybinding")


def home(release: str) -> str:
    """Return the namespace in which the release is installed."""
    return f"chart-test-home-{release}"


def watched(release: str) -> str:
    """Return the only namespace that the release watches."""
    return f"chart-test-kafka-{release}"


def account(release: str) -> str:
    return f"system:serviceaccount:{home(release)}:{RELEASE}"


def other(release: str) -> str:
    return OTHER if release == ONE else ONE


@dataclass(frozen=True)
class Releases:
    """The cluster with both releases; the first owns the CRD."""

    cluster: Cluster
    helm: str
    chart: Path

    def run_helm(self, command: str, release: str, *options: str) -> subprocess.CompletedProcess[str]:
        arguments = [self.helm, command, RELEASE, "--namespace", home(release), *options]
        arguments += ["--kube-context", self.cluster.context] if self.cluster.context else []
        return subprocess.run(
            arguments, capture_output=True, text=True, check=False, env=self.cluster.environment, timeout=120
        )

    def install(self, release: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run_helm(
            "upgrade", release, "--install", str(self.chart), "--set", "image.registry=registry.example.com/kb",
            "--set", f"watchNamespaces={{{watched(release)}}}", "--set-string", f"operator.nodeSelector.{RELEASE}=none",
            *options,
        )  # fmt: skip

    def installed(self) -> None:
        """Install what is missing of both."""
        for release, owns in ((ONE, "true"), (OTHER, "false")):
            answer = self.install(release, "--set", f"crds.enabled={owns}")
            assert answer.returncode == 0, answer.stderr
        self.cluster.do("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")

    def cluster_scoped(self, release: str) -> set[str]:
        """Return the cluster-scoped objects that helm made for the release."""
        found = json.loads(self.cluster.do("get", ",".join((*KINDS, "crd")), "--output", "json"))["items"]
        namespace = "meta.helm.sh/release-namespace"
        return {
            f"{o['kind']}/{o['metadata']['name']}"
            for o in found
            if o["metadata"].get("annotations", {}).get(namespace) == home(release)
        }

    def refusal(self, release: str, user: str = SOMEBODY) -> str:
        """Return the words with which a change of the release's locked StatefulSet is refused, ``""`` if it is admitted."""
        patch = '{"spec":{"replicas":1}}'
        answer = self.cluster.run(
            "patch", "statefulset", "kafka", "--namespace", watched(release), "--patch", patch, "--dry-run=server", user=user
        )  # fmt: skip
        return answer.stderr if answer.returncode else ""


@pytest.fixture(scope="module")
def both(cluster: Cluster, helm_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    """Both releases, and in the namespace of each a migration with its locked StatefulSet."""
    chart = tmp_path_factory.mktemp("two") / "chart"
    shutil.copytree(CHART, chart)
    for file in (f for f in chart.rglob("*") if f.is_file()):
        file.write_text(file.read_text().replace("kraftbridge.dev", GROUP))
    releases = Releases(cluster, helm_binary, chart)
    namespaces = [*map(home, RELEASES), *map(watched, RELEASES), NOBODYS]
    _remove(releases, namespaces)
    try:
        for namespace in namespaces:
            cluster.do("create", "namespace", namespace)
        releases.installed()
        for release in RELEASES:
            objects = _objects(release)
            attempt = (
                "apply",
                "--server-side",
                "--force-conflicts",
                "--namespace",
                watched(release),
                "--filename",
                "-",
            )
            cluster.do(*attempt, stdin=yaml.safe_dump_all(objects), user=account(release))
            eventually(lambda name=release: releases.refusal(name) != "", f"the policy of {release} takes effect")
        yield releases
    finally:
        _remove(releases, namespaces)


def _objects(release: str) -> list[dict[str, Any]]:
    template = {
        "metadata": {"labels": {"app": "kafka"}},
        "spec": {"containers": [{"name": "kafka", "image": "none:1"}]},
    }
    lock = {f"{GROUP}/locked-by": f"{watched(release)}/demo/0b0e3c5e"}
    spec = {"replicas": 0, "serviceName": "kafka", "selector": {"matchLabels": {"app": "kafka"}}, "template": template}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "credentials"}, "stringData": {"password": "x"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kafka-config"}, "data": {"a": "b"}},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "kafka", "annotations": lock}, "spec": spec},
        {"apiVersion": f"{GROUP}/v1alpha1", "kind": "KafkaMigration", "metadata": {"name": "demo"}, "spec": spec_document()},
    ]  # fmt: skip


def _remove(releases: Releases, namespaces: list[str]) -> None:
    for release in RELEASES:
        releases.run_helm("uninstall", release, "--ignore-not-found", "--no-hooks")
    releases.cluster.do("delete", "crd", CRD, "--ignore-not-found")
    releases.cluster.do("delete", "namespace", *namespaces, "--ignore-not-found", "--wait")


@pytest.fixture(scope="module")
def accounts(both: Releases, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cluster]:
    """Return the cluster as the account of each release sees it."""
    folder = tmp_path_factory.mktemp("accounts")
    return {release: seen_by(both, release, folder) for release in RELEASES}


def seen_by(both: Releases, release: str, folder: Path) -> Cluster:
    """Return the cluster as the account of a release sees it: with a token of the account and nothing else."""
    raw = json.loads(both.cluster.do("config", "view", "--raw", "--minify", "--flatten", "--output", "json"))
    token = both.cluster.do("create", "token", RELEASE, "--namespace", home(release)).strip()
    users = [{"name": each["name"], "user": {"token": token}} for each in raw["users"]]
    (folder / release).write_text(json.dumps(raw | {"users": users}))
    environment = both.cluster.environment | {"KUBECONFIG": str(folder / release)}
    seen = replace(both.cluster, environment=environment, context=None)
    assert account(release) in seen.do("auth", "whoami", "--output", "json")
    return seen


def rules(seen: Cluster, namespace: str) -> set[str]:
    """Return every right that an account has in a namespace, as the API server's authorizer lists them."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = json.loads(seen.do("create", "--filename", "-", "--output", "json", stdin=json.dumps(review)))["status"]
    assert not answer["incomplete"], answer
    return {json.dumps(rule, sort_keys=True) for rule in answer["resourceRules"] + answer["nonResourceRules"]}


def test_each_cluster_scoped_object_belongs_to_one_release(both: Releases) -> None:
    one, second = (both.cluster_scoped(release) for release in RELEASES)
    assert f"CustomResourceDefinition/{CRD}" in one
    kinds = {found.partition("/")[0].lower() for found in second}
    assert kinds == set(KINDS)
    assert len(one) == len(second) + 1
    assert not one & second


def test_a_second_owner_of_the_crd_is_refused_and_changes_nothing(both: Releases) -> None:
    before = both.cluster.get("crd", CRD)["metadata"]
    answer = both.install(OTHER, "--set", "crds.enabled=true")
    assert answer.returncode != 0
    assert CRD in answer.stderr
    assert "invalid ownership metadata" in answer.stderr
    after = both.cluster.get("crd", CRD)["metadata"]
    assert (after["uid"], after["resourceVersion"]) == (before["uid"], before["resourceVersion"])
    assert both.refusal(OTHER)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("place", [home, watched])
def test_an_account_has_no_right_in_the_others_namespaces(
    accounts: dict[str, Cluster], release: str, place: Any
) -> None:
    everywhere = rules(accounts[release], NOBODYS)
    assert rules(accounts[release], place(other(release))) == everywhere
    assert rules(accounts[release], watched(release)) > everywhere


@pytest.mark.parametrize("release", RELEASES)
def test_what_an_account_may_everywhere_is_to_read(accounts: dict[str, Cluster], release: str) -> None:
    granted = [json.loads(rule) for rule in rules(accounts[release], NOBODYS)]
    writing = [r for r in granted if not set(r["verbs"]) <= {"get", "list", "watch"}]
    # Every account may ask about itself.
    assert {g for r in writing for g in r["apiGroups"]} <= {"authorization.k8s.io", "authentication.k8s.io"}
    assert "secrets" not in {name for r in granted for name in r.get("resources", [])}


REQUESTS = [
    ("get", "secret", "credentials"),
    ("get", "configmap", "kafka-config"),
    ("get", "pods"),
    ("get", "statefulset", "kafka"),
    ("get", CRD, "demo"),
    ("patch", "statefulset", "kafka", "--patch", '{"spec":{"replicas":1}}', "--dry-run=server"),
    ("patch", CRD, "demo", "--type=merge", "--patch", '{"metadata":{"labels":{"x":"y"}}}', "--dry-run=server"),
    ("patch", CRD, "demo", "--subresource=status", "--type=merge", "--patch", '{"status":{}}', "--dry-run=server"),
    ("create", "configmap", "written", "--dry-run=server"),
    ("create", "secret", "generic", "written", "--dry-run=server"),
    ("create", "service", "clusterip", "written", "--tcp=80", "--dry-run=server"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=" ".join)
@pytest.mark.parametrize("release", RELEASES)
def test_a_request_is_answered_at_home_and_forbidden_next_door(
    accounts: dict[str, Cluster], release: str, request_: tuple[str, ...]
) -> None:
    seen = accounts[release]
    mine = seen.run("--namespace", watched(release), *request_)
    assert mine.returncode == 0, mine.stderr
    theirs = seen.run("--namespace", watched(other(release)), *request_)
    assert theirs.returncode != 0, f"was accepted: {theirs.stdout}"
    assert f'User "{account(release)}" cannot' in theirs.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_the_policy_lets_its_own_operator_alone_through(both: Releases, release: str) -> None:
    """Also one to whom an administrator gave every right."""
    assert both.refusal(release, user=account(release)) == ""
    told = both.refusal(release, user=account(other(release)))
    assert f"is locked by KafkaMigration {watched(release)}/demo" in told
    assert f"{home(release)}.{RELEASE}-locked-statefulsets" in told


@pytest.mark.parametrize("gone", RELEASES)
def test_the_uninstallation_of_one_leaves_the_other_at_work(both: Releases, gone: str, tmp_path: Path) -> None:
    left = other(gone)
    seen = seen_by(both, left, tmp_path)  # the account of a release that was installed again is another one
    migrations = {release: _migration(both, release) for release in RELEASES}
    objects, granted = both.cluster_scoped(left), rules(seen, watched(left))
    try:
        answer = both.run_helm("uninstall", gone, "--wait", "--no-hooks")
        assert answer.returncode == 0, answer.stderr
        eventually(lambda: both.refusal(gone) == "", "the policy of the release that is gone has no effect any more")
        assert both.cluster_scoped(gone) <= {f"CustomResourceDefinition/{CRD}"}
        # The CRD, and so every migration, stays whoever owned it.
        assert {release: _migration(both, release) for release in RELEASES} == migrations
        assert both.cluster_scoped(left) == objects
        assert f"is locked by KafkaMigration {watched(left)}/demo" in both.refusal(left)
        assert rules(seen, watched(left)) == granted
        status = ("patch", CRD, "demo", "--subresource=status", "--type=merge", "--patch", '{"status":{}}')
        seen.do("--namespace", watched(left), *status)
        invalid = ("patch", CRD, "demo", "--type=merge", "--patch", '{"spec":{"target":"Nowhere"}}')
        assert "Unsupported value" in both.cluster.refused("--namespace", watched(left), *invalid)
    finally:
        both.installed()


def test_the_other_release_can_take_over_a_crd_whose_owner_is_gone(both: Releases) -> None:
    before = _migration(both, OTHER)
    try:
        assert both.run_helm("uninstall", ONE, "--wait", "--no-hooks").returncode == 0
        answer = both.install(OTHER, "--set", "crds.enabled=true")
        assert "invalid ownership metadata" in answer.stderr
        answer = both.install(OTHER, "--set", "crds.enabled=true", "--take-ownership")
        assert answer.returncode == 0, answer.stderr
        assert f"CustomResourceDefinition/{CRD}" in both.cluster_scoped(OTHER)
        assert _migration(both, OTHER) == before
    finally:
        both.install(ONE, "--set", "crds.enabled=true", "--take-ownership")
        both.installed()


def _migration(both: Releases, release: str) -> tuple[str, int]:
    found = json.loads(both.cluster.do("get", CRD, "demo", "--namespace", watched(release), "--output", "json"))
    return found["metadata"]["uid"], found["metadata"]["generation"]
