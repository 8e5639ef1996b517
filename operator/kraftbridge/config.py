"""Settings of the operator process, from environment variables that the chart sets."""

from __future__ import annotations

import socket

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Everything that is the same for all migrations; variables are prefixed with ``KRAFTBRIDGE_``."""

    model_config = SettingsConfigDict(env_prefix="KRAFTBRIDGE_", use_attribute_docstrings=True)

    operator_image: str
    """Image of this operator, for the init container and the log server in the controllers' pods."""
    verifier_image: str = ""
    """Image of the verification where a migration names none."""
    verifier_service_account: str = "kraftbridge-verifier"
    """Service account of the verification's driver, in the migration's namespace."""
    namespaces: str = ""
    """Comma-separated namespaces to watch; empty: all."""
    admission_policy: str = ""
    """Name of the chart's ValidatingAdmissionPolicy and its binding; empty: none was installed."""
    dry_start: bool = True
    """Whether preflight starts fenced copies of the brokers' pods."""
    log_level: str = "info"
    """debug, info, warning or error."""
    cluster_domain: str = "cluster.local"
    """DNS domain of the Kubernetes cluster."""
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

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """Namespaces to watch; empty for all."""
        return tuple(n.strip() for n in self.namespaces.split(",") if n.strip())
