"""The cluster's DNS domain is found, recorded in Preflight, and part of every host name of the controllers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.services.conftest import Operator

import kraftbridge
from kraftbridge.config import searched_domain
from kraftbridge.constants import KIND
from kraftbridge.models.phase import Phase

HOST = "{name}-3000.{name}.kafka.svc.{domain}"


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("search kraftbridge.svc.corp.example svc.corp.example corp.example\nnameserver 10.96.0.10\n", "corp.example"),
        ("nameserver 10.96.0.10\nsearch ns.svc.cluster.local svc.cluster.local cluster.local lan\n", "cluster.local"),
        ("search a.svc.old svc.old old\nsearch a.svc.new. svc.new. new.\n", "new"),
        ("search lan example.com\n", "cluster.local"),
        ("# search svc.comment\n\n", "cluster.local"),
    ],
)
def test_the_domain_is_the_one_that_the_pods_resolver_searches(tmp_path: Path, text: str, domain: str) -> None:
    (tmp_path / "resolv.conf").write_text(text)
    assert searched_domain(tmp_path / "resolv.conf") == domain
    assert searched_domain(tmp_path / "none") == "cluster.local"


def moved(operator: Operator, domain: str) -> None:
    """Let another process of the operator begin, in whose pod the domain is another."""
    operator.restart()
    operator.reconciler._settings.cluster_domain = domain
    operator.reconciler._settings.__dict__.pop("domain", None)


def said(operator: Operator) -> str:
    """Return everything that the operator has written into the cluster."""
    ours = (v for k, v in operator.kubernetes.objects.items() if k[0] not in {KIND, "Event"})
    return json.dumps(list(ours), default=str)


def test_the_controllers_keep_the_domain_of_preflight(operator: Operator) -> None:
    moved(operator, "corp.example")
    operator.walk(Phase.PROVISIONING_QUORUM)
    assert operator.status().cluster_domain == "corp.example"
    moved(operator, "other.example")
    operator.walk(Phase.DUAL_WRITE, steps=300)
    assert operator.status().cluster_domain == "corp.example"
    everything = said(operator)
    assert HOST.format(name=operator.controllers(), domain="corp.example") in everything
    assert "other.example" not in everything
    assert "cluster.local" not in everything


def test_a_migration_of_an_earlier_release_keeps_its_host_names(operator: Operator) -> None:
    operator.walk(Phase.PROVISIONING_QUORUM)
    operator.rest(5)
    del operator.migration()["status"]["clusterDomain"]
    moved(operator, "corp.example")
    operator.walk(Phase.DUAL_WRITE, steps=300)
    assert HOST.format(name=operator.controllers(), domain="cluster.local") in said(operator)
    assert "corp.example" not in said(operator)


def test_no_other_module_knows_a_domain() -> None:
    root = Path(kraftbridge.__file__).parent
    named = [
        str(p.relative_to(root))
        for p in root.rglob("*.py")
        if '"cluster.local' in p.read_text() or "svc.cluster.local" in p.read_text()
    ]
    assert named == ["constants.py"]
