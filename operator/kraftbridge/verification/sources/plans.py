"""What the data sources read: each takes its plan as one option, `plan`, a model below as JSON.

Secrets are named in it by path only, and read where the task runs.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from kraftbridge.metadata.entities import Secrets
from kraftbridge.models.report import BrokerAccess, ZooKeeperAccess


class _Plan(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    salt: str
    """Key of the hashes that stand for secrets, in hexadecimal; belongs to one run."""
    encoder_secret_path: str | None = None

    def secrets(self) -> Secrets:
        """Return how secrets appear in rows."""
        return Secrets(bytes.fromhex(self.salt), compare_passwords=self.encoder_secret_path is not None)

    def encoder_secret(self) -> str | None:
        """Return the brokers' `password.encoder.secret`, if it was given."""
        if self.encoder_secret_path is None:
            return None
        return Path(self.encoder_secret_path).read_text(encoding="utf-8").strip()


class ZooKeeperPlan(_Plan):
    """What `zookeeper` reads: a live tree or a dump of one."""

    access: ZooKeeperAccess | None = None
    dump: str | None = None
    chroot: str = ""
    soundness: bool = False
    """Also check whether the tree is sound, and give findings."""
    parallelism: int = Field(default=2, ge=1)
    topics_per_slice: int = Field(default=500, ge=1)


class LogVoter(BaseModel):
    """One voter's log."""

    id: int
    name: str
    url: str
    mirrored: bool = False
    """Whether this is the log that ZooKeeper and brokers are compared with."""


class LogPlan(_Plan):
    """What `kraft-log` reads."""

    voters: list[LogVoter]
    token_path: str | None = None
    ca_path: str | None = None
    replicas_offset: int | None = None
    """Offset at which the voters' images are compared; None: they are not."""
    fence_offset: int | None = None
    """Oldest log offset that ZooKeeper mirrored when it was read."""
    at_fence: bool = False
    """Also give the image at `fence_offset`, since ZooKeeper cannot be read again."""
    served: bool = False
    """Also give what brokers should serve."""


class ServedPlan(_Plan):
    """What `broker-served` reads."""

    brokers: list[BrokerAccess]
    client_config_path: str | None = None
    timeout_seconds: float = 20.0
    patience_seconds: float = 30.0
    """How long a broker that does not answer, since it restarts perhaps, is asked again."""
