"""Settings of the operator process, from environment variables that the chart sets."""

from __future__ import annotations

import socket
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from kraftbridge.constants import DEFAULT_CLUSTER_DOMAIN
from kraftbridge.pods.fence import METADATA_SERVER

RESOLVER: Final = Path("/etc/resolv.conf")


def searched_domain(resolver: Path) -> str:
    """Return the cluster's DNS domain, as the search list of a pod's ``resolv.conf`` shows it.

    The kubelet lists ``<namespace>.svc.<domain>``, ``svc.<domain>`` and ``<domain>`` for pods with the policy
    ``ClusterFirst`` (Kubernetes: DNS for Services and Pods).
    Without such a list, as outside of a cluster, the answer is `DEFAULT_CLUSTER_DOMAIN`.
    """
    try:
        lines = resolver.read_text(errors="replace").splitlines()
    except OSError:
        return DEFAULT_CLUSTER_DOMAIN
    searched: list[str] = []
    for line in lines:
        keyword, *words = line.split() or [""]
        if keyword == "search":
            searched = words  # the last one counts (resolv.conf(5))
    for word in searched:
        if word.startswith("svc."):
            return word.rstrip(".").removeprefix("svc.")
    return DEFAULT_CLUSTER_DOMAIN


def _listed(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


class Settings(BaseSettings):
    """Everything that is the same for all migrations; variables are prefixed with ``KRAFTBRIDGE_``."""

    model_config = SettingsConfigDict(env_prefix="KRAFTBRIDGE_", use_attribute_docstrings=True)

    operator_image: str
    """Image of this operator, for the init container and the log server in the controllers' pods."""
    verifier_image: str = ""
    """Image of the verification where a migration names none."""
    verifier_service_account: str = "kraftbridge-verifier"
    """Service account of the verification's driver, in the migration's namespace."""
    image_pull_secrets: str = ""
    """Comma-separated Secrets for pulling the images of every pod that the operator creates."""
    namespaces: str = ""
    """Comma-separated namespaces to watch; empty: all."""
    admission_policy: str = ""
    """Name of the chart's ValidatingAdmissionPolicy and its binding; empty: none was installed."""
    dry_start: bool = True
    """Whether preflight starts fenced copies of the brokers' pods."""
    outside_address: str = "1.1.1.1:443"
    """An address outside of the cluster, which a fence must close; empty: none is tried."""
    connect_allow: str = ""
    """Comma-separated networks that the operator may connect to besides those of each migration's own."""
    log_level: str = "info"
    """debug, info, warning or error."""
    cluster_domain: str = ""
    """DNS domain of the Kubernetes cluster; empty: the one in the search list of this pod's resolver."""
    instance: str = Field(default_factory=socket.gethostname)
    """Name of the operator's pod, which identifies it as holder of Leases."""
    metrics_port: int = 8000
    """Port of the operator's Prometheus metrics."""
    liveness_port: int = 8080
    """Port of the health endpoint."""
    max_concurrent_rolls: int = Field(default=5, ge=0)
    """How many migrations may restart nodes at the same time; 0 for any number."""
    pod_namespace: str = Field(default="default", validation_alias="POD_NAMESPACE")
    """Namespace that the operator runs in, for the controllers' NetworkPolicy."""

    @cached_property
    def domain(self) -> str:
        """DNS domain of the Kubernetes cluster."""
        return self.cluster_domain or searched_domain(RESOLVER)

    @property
    def pull_secrets(self) -> tuple[str, ...]:
        """Names of the Secrets for pulling images."""
        return _listed(self.image_pull_secrets)

    @property
    def beyond_the_cluster(self) -> tuple[str, ...]:
        """Addresses that a fence must close where they can be reached outside of it."""
        return (METADATA_SERVER, *_listed(self.outside_address))

    @cached_property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Networks of ``connect_allow``.

        Raises
        ------
        ValueError
            One of them is none.
        """
        return tuple(map(ip_network, _listed(self.connect_allow)))

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """Namespaces to watch; empty for all."""
        return _listed(self.namespaces)
