"""Finds other KafkaMigrations that are about the same cluster. Pure.

Locks and Leases keep two migrations apart once one of them holds a StatefulSet. Before that, and where each names other
StatefulSets of one cluster, nothing else does. The one that was created later is refused, and before all the one that
has not left Preflight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Unobserved, ZooKeeperState
from kraftbridge.models.phase import Phase
from kraftbridge.models.status import FindingStatus, finding, some
from kraftbridge.models.survey import MigrationClaim, Survey
from kraftbridge.phases.draft import StepContext

_CLIENT_PORT: Final = "2181"
"""ZooKeeper's default (``ConnectStringParser.DEFAULT_PORT``)."""
_OPEN: Final = frozenset(str(phase) for phase in Phase if phase.row.is_open)


def findings(step: StepContext, survey: Survey) -> Iterator[FindingStatus]:
    """Return a finding for each migration of the same cluster that comes before this one."""
    claims = survey.migrations
    if isinstance(claims, Unobserved):
        yield finding(Code.ANOTHER_MIGRATION_UNKNOWN, "cluster", reason=claims)
        return
    own = _own(step, claims)
    for other in sorted(claims, key=_order):
        if other.uid == own.uid or _order(other) > _order(own):
            continue
        if same := _in_common(own, other, step.identity.cluster_domain):
            name = f"{other.namespace}/{other.name}"
            common = ", ".join(same)
            yield finding(Code.ANOTHER_MIGRATION, f"KafkaMigration/{name}", other=name, phase=other.phase, same=common)


def _own(step: StepContext, claims: tuple[MigrationClaim, ...]) -> MigrationClaim:
    """Return what this migration claims. One that is not among the others is the youngest."""
    identity = step.identity
    zookeeper = step.observation.zookeeper
    created = next((claim.created_at for claim in claims if claim.uid == identity.uid), "~")
    cluster_id = zookeeper.cluster_id if isinstance(zookeeper, ZooKeeperState) else None
    return MigrationClaim(
        namespace=identity.namespace,
        name=identity.name,
        uid=identity.uid,
        created_at=created,
        phase=step.status.phase,
        stateful_sets=frozenset(ref.name for ref in step.spec.brokers.stateful_sets),
        connect=step.spec.zookeeper.connect,
        cluster_id=cluster_id or "",
    )


def _order(claim: MigrationClaim) -> tuple[bool, str, str]:
    """Return the place of a migration: first those that have left Preflight, then the oldest."""
    return claim.phase in _OPEN, claim.created_at, claim.uid


def _in_common(own: MigrationClaim, other: MigrationClaim, domain: str) -> list[str]:
    """Return what two migrations have in common that only one may have, in words."""
    same = []
    shared = own.stateful_sets & other.stateful_sets
    if shared and own.namespace == other.namespace:
        same.append(f"StatefulSet {some(shared)}")
    namespaces = frozenset({own.namespace, other.namespace})
    hosts = _ensemble(own, namespaces, domain) & _ensemble(other, namespaces, domain)
    if hosts and _chroot(own.connect) == _chroot(other.connect):
        same.append(f"ZooKeeper {some(hosts)}{_chroot(own.connect)}")
    if own.cluster_id and own.cluster_id == other.cluster_id:
        same.append(f"cluster id {own.cluster_id}")
    return same


def _chroot(connect: str) -> str:
    """Return the chroot without what makes no difference: slashes at its end, and several in a row."""
    names = [name for name in connect.partition("/")[2].split("/") if name]
    return "".join(f"/{name}" for name in names)


def _ensemble(claim: MigrationClaim, namespaces: frozenset[str], domain: str) -> frozenset[str]:
    """Return the servers of a connect string as ``host:port``, each as it is known in the whole Kubernetes cluster."""
    hosts = claim.connect.partition("/")[0].split(",")
    return frozenset(_server(host.strip().lower(), claim.namespace, namespaces, domain) for host in hosts)


def _server(address: str, namespace: str, namespaces: frozenset[str], domain: str) -> str:
    host, port = _parted(address)
    return f"{_qualified(host.rstrip('.'), namespace, namespaces, domain)}:{port}"


def _parted(address: str) -> tuple[str, str]:
    """Return host and port. An address of IPv6 stands in brackets before a port."""
    if address.startswith("["):
        host, _, port = address.removeprefix("[").partition("]")
        return host, port.removeprefix(":") or _CLIENT_PORT
    host, _, port = address.partition(":")
    return (address, _CLIENT_PORT) if ":" in port else (host, port or _CLIENT_PORT)


def _qualified(host: str, namespace: str, namespaces: frozenset[str], domain: str) -> str:
    """Return a name of a Service or of a pod behind one with namespace and domain, as the search list of a pod does.

    The search list alone cannot tell a namespace from the name of a Service. A name that ends in the namespace of
    either migration is taken for one with a namespace. Addresses, and other names of three parts, are complete.
    """
    parts = host.split(".")
    if ":" in host or host.replace(".", "").isdigit() or host.endswith(f".svc.{domain}"):
        return host
    if parts[-1] == "svc":
        return f"{host}.{domain}"
    if len(parts) > 1 and parts[-1] in namespaces:
        return f"{host}.svc.{domain}"
    return f"{host}.{namespace}.svc.{domain}" if len(parts) < _OUTSIDE else host


_OUTSIDE: Final = 3
"""A name of so many parts, without a namespace, is one of outside: ``zk.example.com``."""
