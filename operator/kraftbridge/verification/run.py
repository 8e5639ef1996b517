"""One run's state, and what all of its steps do: be timed, read, count."""

from __future__ import annotations

import secrets as random_bytes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.metadata.entities import PASSWORD_LENGTH_PREFIX
from kraftbridge.metadata.errors import MetadataError
from kraftbridge.models.report import EntityKind, Fence, KindCounts, VerificationRequest
from kraftbridge.verification.compare.places import Comparison
from kraftbridge.verification.inputs import Inputs
from kraftbridge.verification.session import load
from kraftbridge.verification.verdict import Outcome


class DeadlineError(MetadataError):
    """The run took longer than its request allows."""


@dataclass(slots=True)
class Run:
    """One run over one session.

    Attributes
    ----------
    session
        Spark session with the data sources registered.
    request
        What is asked for; identity and limits of the run.
    inputs
        Where the data is.
    salt
        Key of the hashes that stand for secrets; in no report.
    few
        There are so few rows that a shuffle costs more than one task that does everything.
    """

    session: SparkSession
    request: VerificationRequest
    inputs: Inputs
    outcome: Outcome = field(default_factory=Outcome)
    timings: dict[str, float] = field(default_factory=dict)
    fence: Fence = field(default_factory=Fence)
    salt: bytes = field(default_factory=lambda: random_bytes.token_bytes(32))
    few: bool = True
    began: float = field(default_factory=time.monotonic)
    cached: list[DataFrame] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage.

        Raises
        ------
        DeadlineError
            The run's time is over before it.
        """
        if time.monotonic() - self.began > self.request.deadline_seconds:
            raise DeadlineError(f"the run's deadline of {self.request.deadline_seconds:g} s passed before: {name}")
        began = time.monotonic()
        try:
            yield
        finally:
            self.timings[name] = round(time.monotonic() - began, 3)

    def load(self, source: str, plan: str) -> DataFrame:
        """Return a source's rows, kept until the run ends."""
        frame = load(self.session, source, plan)
        self.cached.append(frame)
        return frame

    def release(self) -> None:
        """Let go of the rows."""
        for frame in self.cached:
            frame.unpersist()

    def count(self, comparison: Comparison, columns: dict[str, str], *, only_new: bool = False) -> None:
        """Take a comparison's counts into the report's columns.

        Parameters
        ----------
        columns
            Column of the report by place.
        only_new
            Leave kinds alone that are counted already.
        """
        for kind, counts in comparison.counts.items():
            if only_new and kind in self.outcome.counts:
                continue
            update: dict[str, int] = {column: counts[place] for place, column in columns.items()}
            update["compared"] = comparison.keys[kind]
            self.outcome.counts[kind] = self.outcome.counts.get(kind, KindCounts()).model_copy(update=update)


def notes_among(frame: DataFrame) -> list[Any]:
    """Return the notes among rows, and broker configs of whose passwords only the length is known."""
    passwords = (F.col("kind") == str(EntityKind.BROKER_CONFIG)) & F.col("value").contains(PASSWORD_LENGTH_PREFIX)
    rows: list[Any] = frame.where(F.col("kind").startswith("$") | passwords).select("kind", "key", "value").collect()
    return rows
