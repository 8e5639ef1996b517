"""The contract between the operator and the verification job: request, go, verdict and report.

The operator writes a `VerificationRequest` and a `Go` into a ConfigMap, the job answers there with `Ready`, a
`VerdictSummary` and, as a compressed file, the whole `VerificationReport`. `docs/report-schema.md` has every field.
Everything is JSON with camelCase names; `schemaVersion` grows when a reader of the former version would misunderstand.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel
from typing_extensions import override

from kraftbridge.models.catalogue import Code, Severity
from kraftbridge.models.entities import ENTITY_KINDS, EntityKind, KindCounts
from kraftbridge.outside.json_text import writable
from kraftbridge.outside.visible import all_visible, visible

SCHEMA_VERSION: Final = 1

REQUEST_KEY: Final = "request.json"
"""ConfigMap key of the `VerificationRequest`; written by the operator before the job starts."""
GO_KEY: Final = "go"
"""ConfigMap key of the `Go`; written by the operator when it wants the data to be read."""
READY_KEY: Final = "ready"
"""ConfigMap key of the `Ready`; written by the job when its Spark session is warm."""
VERDICT_KEY: Final = "verdict.json"
"""ConfigMap key of the `VerdictSummary`; written by the job at the end of a run."""
REPORT_KEY: Final = "report.json.gz.b64"
"""ConfigMap key of the `VerificationReport`: JSON, gzip, base64."""

MAXIMUM_SUMMARY_BYTES: Final = 8 * 1024
"""A summary is kept below this size, so that status and ConfigMap stay small."""
MAXIMUM_REPORT_BYTES: Final = 700 * 1024
"""A report in the ConfigMap is bounded to this size after base64; the API server refuses ConfigMaps over 1 MiB."""

EXIT_FINISHED: Final = 0
"""Exit code of `run`: the job has written its verdict, whatever it is."""
EXIT_BAD_REQUEST: Final = 2
"""Exit code of `run`: the request could not be read or understood."""
EXIT_NOT_WANTED: Final = 3
"""Exit code of `run`: armed, but the operator's go did not come before the deadline."""


class Verdict(StrEnum):
    """Verdict of a verification. Only `CONSISTENT` opens a gate."""

    CONSISTENT = "Consistent"
    INCONSISTENT = "Inconsistent"
    INCONCLUSIVE = "Inconclusive"


class CompareServed(StrEnum):
    """When what every broker serves is compared, too: with the metadata log, or by `Profile.UPGRADE` with the tree."""

    NEVER = "Never"
    """Never."""
    IF_ALLOWED = "IfAllowed"
    """Where brokers answer and the principal's rights allow it.
    A broker that serves something else makes the verdict `Inconsistent`; what stays unknown is a warning."""
    ALWAYS = "Always"
    """Always. What stays unknown makes the verdict `Inconclusive`."""


class Profile(StrEnum):
    """Sources that a verification compares."""

    ZOOKEEPER = "zookeeper"
    """Checks the ZooKeeper tree: Kafka can read and decode everything that the copy reads."""
    DUAL_WRITE = "dual-write"
    """Compares ZooKeeper, the metadata log and, if requested, the answers of the brokers."""
    COPY = "copy"
    """Compares the tree before the sync with the log at the end of Kafka's copy."""
    REPLICAS = "replicas"
    """Compares the images of all voters at one offset."""
    UPGRADE = "upgrade"
    """Compares the ZooKeeper tree with what every broker serves, before and after its way to another release."""


class DifferenceState(StrEnum):
    """How an entity differs between the places it was read from."""

    MISSING = "missing"
    """Present at the reference (the metadata log), absent elsewhere."""
    EXTRA = "extra"
    """Present elsewhere, absent in the reference."""
    CHANGED = "changed"
    """Present in all, with different attributes."""
    DUPLICATE = "duplicate"
    """One place holds the entity more than once."""


class _Model(BaseModel):
    """camelCase in JSON, snake_case in Python; unknown fields are refused, since they could change the meaning."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _writable(cls, value: Any) -> Any:
        return writable(value)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the JSON form with the field names of the contract."""
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=indent)


class Said(_Model):
    """What a report says: names and values in it come from a cluster, and somebody reads them."""

    @field_validator("*", mode="before")
    @classmethod
    @override
    def _writable(cls, value: Any) -> Any:
        return all_visible(value)


class ZooKeeperAccess(_Model):
    """How the job connects to ZooKeeper."""

    connect: str = Field(min_length=1)
    """Connect string as in `zookeeper.connect`, chroot included: ``zk-0:2181,zk-1:2181/kafka``."""
    credentials_path: str | None = None
    """Mounted Secret folder with `username`, `password`, and `scheme` (``digest``, the default, or ``sasl``)."""
    tls_path: str | None = None
    """Mounted Secret folder with `ca.crt` and, to authenticate, `tls.crt` and `tls.key`; its presence turns TLS on."""
    secret_path: str | None = None
    """Mounted `spec.zookeeper.secretName`: its keys decide:
    `username` enables authentication, and `ca.crt` enables TLS."""
    tls_verify_hostname: bool = True
    session_timeout_seconds: float = Field(default=30.0, gt=0)


class VoterAccess(_Model):
    """How the job reaches one controller: its log through the log server, its quorum view through the listener."""

    id: int = Field(ge=0)
    log_url: str
    """``https://host:9443`` of the pod's log server, or ``file:///directory`` that holds `__cluster_metadata-0`."""
    host: str | None = None
    port: int | None = Field(default=None, gt=0, lt=65536)
    """Controller listener for DescribeQuorum (KIP-595, KIP-836)."""


class BrokerAccess(_Model):
    """One broker's listener, for what it serves."""

    id: int = Field(ge=0)
    host: str
    port: int = Field(gt=0, lt=65536)


class ConfigMapReference(_Model):
    """Where the run's request, go and verdict are."""

    namespace: str
    name: str


def digest_of(request: str) -> str:
    """Return the digest by which a run knows its request, as JSON: SHA-256."""
    return hashlib.sha256(request.encode()).hexdigest()


class VerificationRequest(_Model):
    """Sources that the job compares, and their addresses."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str = Field(min_length=1, max_length=128)
    migration_uid: str = ""
    generation: int = 0
    phase: str = ""
    profile: Profile
    zookeeper: ZooKeeperAccess | None = None
    """Needed by all profiles but `replicas`."""
    tree_path: str | None = None
    """File in which profile `copy` keeps the tree as it is read, secrets as hashes: a dump as `watch` writes it."""
    tree_key_path: str | None = None
    """File with the key of these hashes. Profile `copy` needs it."""
    voters: list[VoterAccess] = Field(default_factory=list)
    """Every voter; needed by all profiles but `zookeeper` and `upgrade`."""
    controller_config_path: str | None = None
    """Properties file for the controllers' listener: ``security.protocol``, ``sasl.*``, ``ssl.*`` with PEM stores."""
    listener_secret_path: str | None = None
    """Directory with the Secret of the controllers' listener.
    The job shows the controllers its certificate, and `controller_config_path` is None."""
    listener_login: bool = False
    """Whether the job logs in with the login in that Secret (``SASL_SSL``), instead of showing a certificate."""
    token_path: str | None = None
    """File with the bearer token of the log servers."""
    ca_path: str | None = None
    """CA certificate (PEM) of the log servers."""
    bootstrap_servers: str | None = None
    client_config_path: str | None = None
    """Properties file with the security settings of the brokers' listener."""
    compare_served: CompareServed = CompareServed.NEVER
    """Whether what each broker serves is compared, too; needs `brokers` or `bootstrap_servers`."""
    brokers: list[BrokerAccess] = Field(default_factory=list)
    """Every broker; empty: all that the bootstrap servers name."""
    password_encoder_secret_path: str | None = None
    """File with the brokers' `password.encoder.secret`; without it password configs are compared by length only."""
    require_password_comparison: bool = False
    """Password configs that could not be decoded make the verdict `INCONCLUSIVE`."""
    config_map: ConfigMapReference | None = None
    armed_deadline_seconds: float = Field(default=3600.0, gt=0)
    """Maximum time in seconds that an armed driver waits for its go."""
    deadline_seconds: float = Field(default=300.0, gt=0)
    """How long a run may take from its go; over it the verdict is `INCONCLUSIVE`."""
    fence_tries: int = Field(default=200, ge=1)
    """Maximum number of times that in-flight keys are read again."""
    fence_seconds: float = Field(default=60.0, gt=0)
    """How long in-flight keys are read again, while ZooKeeper's mirror moves."""
    sample_limit: int = Field(default=100, ge=1, le=10_000)
    """Bound of the lists of differences and findings in the report; counts are exact all the same."""


class Go(_Model):
    """The operator's permission to read the data now."""

    run_id: str
    at: datetime


class Ready(_Model):
    """The job's message that its session is ready and that it waits for permission to read."""

    run_id: str
    at: datetime


class AttributeDifference(Said):
    """One attribute whose value is not the same everywhere."""

    name: str
    values: dict[str, str | None]
    """Canonical JSON of the value by place (``zookeeper``, ``log``, ``voter 3001``, ``broker 2``); absent: null.

    Secrets are shown as keyed hashes, equal within one run only."""


class Difference(Said):
    """One entity that is not the same everywhere."""

    kind: EntityKind
    key: str
    state: DifferenceState
    present_in: list[str] = Field(default_factory=list)
    absent_in: list[str] = Field(default_factory=list)
    attributes: list[AttributeDifference] = Field(default_factory=list)
    log_offset: int | None = None
    """Offset of the last record that touched the entity."""
    zookeeper_offset: int | None = None
    """Log offset that ZooKeeper mirrored when the entity was read (`/migration`)."""

    @property
    def in_mirror_only(self) -> bool:
        """Whether only ZooKeeper differs from the log, in what a controller failover writes to ZooKeeper anew."""
        between = {*self.present_in, *self.absent_in} == {"zookeeper", "log"}
        return between and ENTITY_KINDS[self.kind].healable and self.state is not DifferenceState.DUPLICATE

    @property
    def in_partition_state_only(self) -> bool:
        """Whether it also is a partition that ZooKeeper lacks, or whose leader, ISR or epoch is old."""
        partition = self.in_mirror_only and self.kind is EntityKind.PARTITION and "log" not in self.absent_in
        return partition and ("zookeeper" in self.absent_in or {a.name for a in self.attributes} <= PARTITION_STATE)


PARTITION_STATE: Final = frozenset({"leader", "leaderEpoch", "isr", "leaderRecoveryState"})


class Finding(Said):
    """One observation about the soundness of the data, with what to do about it."""

    code: str
    severity: Severity
    object: str
    """Znode path, config name or node that the finding is about."""
    reason: str
    fix: str

    @classmethod
    def of(cls, code: Code, subject: str, /, **details: Any) -> Self:
        """Return a finding of the catalogue; ``details`` are what the texts of its code name."""
        reason, fix = code.describe(**details)
        return cls(code=code, severity=code.severity, object=visible(subject), reason=reason, fix=fix)


class Fence(_Model):
    """What `/migration` said while ZooKeeper was read (KIP-866)."""

    first_offset: int | None = None
    last_offset: int | None = None
    epoch: int | None = None
    controller_id: int | None = None
    batches: int = 0
    rereads: int = 0
    """Rounds in which in-flight keys were read again."""
    reread_keys: int = 0
    unresolved: int = 0
    """Keys that were still in flight at the last try."""


class VoterState(Said):
    """One voter as the quorum and its own log describe it."""

    id: int
    name: str
    end_offset: int | None = None
    """Offset after the last complete batch in the voter's log."""
    reported_end_offset: int | None = None
    """Log end offset in the leader's DescribeQuorum answer."""
    snapshot_offset: int | None = None
    records: int | None = None
    problem: str | None = None
    """Why the voter's log could not be read in full; a torn tail is not a problem of a live log."""
    torn_tail_bytes: int = 0


class VerificationReport(Said):
    """Result of one verification run."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    migration_uid: str = ""
    generation: int = 0
    phase: str = ""
    profile: Profile
    verdict: Verdict
    reason: str
    """Reason of the verdict, in one sentence."""
    counts: dict[EntityKind, KindCounts] = Field(default_factory=dict)
    differing: int = 0
    """Exact number of differing entities; `differences` may hold fewer."""
    differences: list[Difference] = Field(default_factory=list)
    findings_total: int = 0
    blocking_findings_total: int = 0
    findings: list[Finding] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)
    """What could not be read or decoded; any entry rules `CONSISTENT` out."""
    fence: Fence | None = None
    compared_offset: int | None = None
    """Offset at which the voters' images were compared (inclusive)."""
    high_watermark: int | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None
    voters: list[VoterState] = Field(default_factory=list)
    started_at: datetime
    finished_at: datetime
    timings_seconds: dict[str, float] = Field(default_factory=dict)
    """Wall-clock time by stage, in the order in which the stages ran."""


_ShortText = Annotated[str, Field(max_length=400)]


class VerdictSummary(Said):
    """The verdict as it stands in the ConfigMap and in the resource's status; below `MAXIMUM_SUMMARY_BYTES`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    migration_uid: str = ""
    generation: int = 0
    phase: str = ""
    profile: Profile
    verdict: Verdict
    reason: _ShortText
    compared: int = 0
    differing: int = 0
    mirror_differing: int = 0
    """Of these, those that a controller failover would heal (`Difference.in_mirror_only`);
    next, those of them that are partition state."""
    partition_state_differing: int = 0
    findings: int = 0
    blocking_findings: int = 0
    counts: dict[EntityKind, KindCounts] = Field(default_factory=dict)
    samples: list[_ShortText] = Field(default_factory=list, max_length=5)
    """The first differences, findings or problems as one line each."""
    fence_offset: int | None = None
    high_watermark: int | None = None
    compared_offset: int | None = None
    report_sha256: str | None = None
    """SHA-256 of the uncompressed report that the job wrote next to the summary."""
    report_complete: bool = True
    """False: the report in the ConfigMap was bounded to fit."""
    started_at: datetime
    finished_at: datetime

    @classmethod
    def of(
        cls, report: VerificationReport, *, report_sha256: str | None = None, report_complete: bool = True
    ) -> VerdictSummary:
        """Return the compact form of a report.

        Parameters
        ----------
        report
            The whole report.
        report_sha256
            Digest of the JSON that was stored next to the summary.
        report_complete
            Whether that JSON holds everything that the report holds.
        """
        samples = [
            *(_line(difference) for difference in report.differences),
            *(f"{finding.severity} {finding.code} {finding.object}: {finding.reason}" for finding in report.findings),
            *report.problems,
        ]
        return cls(
            run_id=report.run_id,
            migration_uid=report.migration_uid,
            generation=report.generation,
            phase=report.phase,
            profile=report.profile,
            verdict=report.verdict,
            reason=_short(report.reason),
            compared=sum(counts.compared for counts in report.counts.values()),
            differing=report.differing,
            mirror_differing=sum(d.in_mirror_only for d in report.differences),
            partition_state_differing=sum(d.in_partition_state_only for d in report.differences),
            findings=report.findings_total,
            blocking_findings=report.blocking_findings_total,
            counts=report.counts,
            samples=[_short(sample) for sample in samples[:5]],
            fence_offset=report.fence.last_offset if report.fence else None,
            high_watermark=report.high_watermark,
            compared_offset=report.compared_offset,
            report_sha256=report_sha256,
            report_complete=report_complete,
            started_at=report.started_at,
            finished_at=report.finished_at,
        )


def _line(difference: Difference) -> str:
    attributes = ", ".join(attribute.name for attribute in difference.attributes[:8])
    where = attributes
    if difference.absent_in:
        where = f"absent in {', '.join(difference.absent_in)}"
    return f"{difference.kind} {difference.key} {difference.state}: {where}"


def _short(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
