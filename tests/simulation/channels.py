"""Brokers whose channel is for the operator to find: which one reaches them, and what dry starts tell of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from kraftbridge.copies.dry_start import described
from kraftbridge.models.dry_start import CopyOutcome, DryStartReport
from kraftbridge.models.phase import BrokerMode, Phase
from kraftbridge.models.spec import BrokersSpec, ConfigStyle, PropertiesSource
from kraftbridge.models.status import MigrationStatus

FILE = PropertiesSource(volume="config", key="broker.conf")


def channels(brokers: BrokersSpec) -> tuple[BrokersSpec, ...]:
    """Return the channels of the templates, as the operator would guess them."""
    return (
        *(
            brokers.model_copy(update={"config_style": ConfigStyle.ENV, "env_prefix": p})
            for p in ("KAFKA_", "KAFKA_CFG_")
        ),
        brokers.model_copy(update={"config_style": ConfigStyle.PROPERTIES, "properties": FILE}),
    )


@dataclass
class OpenChannel:
    """The pod templates of brokers with ``configStyle: Auto``, and the dry starts of them."""

    random: Random
    known: tuple[BrokersSpec, ...]
    reaching: str = ""
    """The channel that reaches the brokers; ``""``: none does."""
    version: int = 0
    """Of the templates."""

    def fingerprint(self, status: MigrationStatus) -> str:
        """Return the fingerprint of the templates and of the channel."""
        return f"{self.version} {status.channel or described(self.known[0])}"

    def edit(self, status: MigrationStatus) -> bool:
        """Let somebody change the templates before the first broker restarts; return whether another channel reaches them now."""
        if status.phase not in (Phase.PREFLIGHT, Phase.PROVISIONING_QUORUM) or self.random.random() > 0.05:
            return False
        self.version += 1
        before, self.reaching = self.reaching, self.random.choice([*map(described, self.known), "", self.reaching])
        return before != self.reaching

    def mend(self, status: MigrationStatus) -> None:
        """Let the user do what is asked for: some channel reaches the brokers, and after preflight the recorded one does."""
        wanted = described(self.known[0]) if status.channel is None else str(status.channel)
        later = status.phase is not Phase.PREFLIGHT
        if not self.reaching or (later and self.reaching != wanted):
            self.version, self.reaching = self.version + 1, wanted

    def found(self, status: MigrationStatus, fine: DryStartReport) -> DryStartReport:
        """Return what copies of the templates as they are now show; ``fine`` is what they show if all is well."""
        fingerprint = self.fingerprint(status)
        present = fingerprint.partition(" ")[2]
        copies = tuple(_outcome(c, present == self.reaching) for c in fine.copies)
        trials = tuple(
            replace(_outcome(c, described(b) == self.reaching), key=replace(c.key, channel=described(b)))
            for b in self.known
            for c in fine.copies
            if described(b) != present and c.key.mode is not BrokerMode.ZOOKEEPER
        )
        return DryStartReport(fingerprint, copies, trials)


def _outcome(copy: CopyOutcome, reached: bool) -> CopyOutcome:
    if reached or copy.start is None:
        return copy
    settings = {n: v for n, v in copy.start.settings.items() if n not in copy.overlay}
    return replace(copy, start=replace(copy.start, settings=settings))
