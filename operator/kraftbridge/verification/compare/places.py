"""Compares the places of one leg: every entity must be in every place exactly once, with the same value.

One union and one grouping cover all places, so two places and five voters take the same steps.
The grouped columns are numbers (two 64-bit hashes of the value, counts, offsets),
which Spark aggregates without sorting.
Values are fetched afterwards for the entities that differ.
All comparisons are null-safe: a missing entity counts as zero rows, not as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from kraftbridge.models.entities import EntityKind
from kraftbridge.verification.sources.rows import Leg

_FEW_KEYS: Final = 500
_SEED: Final = "kraftbridge"
MAXIMUM_FLAGGED: Final = 20_000
"""Maximum number of differing entities that are examined individually. The others are only counted."""
MAXIMUM_IN_FLIGHT: Final = 500_000
"""Maximum number of entities in flight that are read again. If there are more, the verdict is `Inconclusive`."""


@dataclass(frozen=True, slots=True)
class Copy:
    """An entity in one place: its count, value and offset."""

    count: int
    value: str | None
    offset: int | None


def copy_of(value: str | None) -> Copy:
    """Return a place's only copy of an entity; the place has none if the value is None."""
    return Copy(int(value is not None), value, None)


@dataclass(frozen=True, slots=True)
class Flagged:
    """An entity that is not the same in all places."""

    kind: EntityKind
    key: str
    copies: Mapping[str, Copy]
    in_flight: bool = False
    """Whether a record after the mirrored offset changed the entity."""

    @property
    def identity(self) -> tuple[EntityKind, str]:
        """Kind and key."""
        return self.kind, self.key

    @property
    def has_duplicate(self) -> bool:
        """Whether a place contains the entity more than once."""
        return any(copy.count > 1 for copy in self.copies.values())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing one leg."""

    places: Sequence[str]
    """The compared places."""
    counts: Mapping[EntityKind, Mapping[str, int]]
    """Exact number of rows by kind and place."""
    keys: Mapping[EntityKind, int]
    """Exact number of distinct keys by kind over all places."""
    flagged_counts: Mapping[EntityKind, int]
    """Exact number of flagged entities by kind that are not in flight."""
    flagged: Sequence[Flagged]
    """At most `MAXIMUM_FLAGGED` entities that are not in flight, and `MAXIMUM_IN_FLIGHT` that are."""
    in_flight_count: int = 0
    """Exact number of flagged entities that are in flight."""

    @property
    def beyond(self) -> int:
        """Number of flagged entities that are neither in flight nor in `flagged`."""
        return sum(self.flagged_counts.values()) - sum(not entity.in_flight for entity in self.flagged)

    @property
    def empty_places(self) -> list[str]:
        """The places that hold no metadata at all."""
        return [place for place in self.places if not self.rows_in(place)]

    def rows_in(self, place: str) -> int:
        """Return the number of entities in a place."""
        return sum(by_place.get(place, 0) for by_place in self.counts.values())


def compare(
    rows: DataFrame,
    leg: Leg,
    places: Sequence[str],
    beside: Sequence[str] = (),
    *,
    few: bool = False,
    values: bool = True,
    fence: tuple[str, int] | None = None,
) -> Comparison:
    """Compare the places of one leg.

    Parameters
    ----------
    rows
        Rows as in `kraftbridge.verification.sources.rows`. The caller caches them, because differences are read twice.
    leg
        Rows of other legs, and notes, are ignored.
    places
        The places that must contain every entity.
    beside
        Places whose copies are reported with flagged entities, but not compared.
    few
        There are few rows: one task does all work without a shuffle.
    values
        Whether to return flagged entities with their values, which takes one more pass over the rows.
    fence
        Place whose offsets are those of each entity's last record,
        and the lowest log offset that the first place mirrors.
        An entity with a later record is in flight.
    """
    compared = len(places)
    places = [*places, *beside]
    entities = rows.where(
        (F.col("leg") == str(leg)) & F.col("place").isin(list(places)) & ~F.col("kind").startswith("$")
    )
    if few:
        entities = entities.coalesce(1)
    first_hash = F.xxhash64("value")
    second_hash = F.xxhash64(F.lit(_SEED), F.col("value"))
    aggregates: list[Column] = []
    for index, place in enumerate(places):
        here = F.col("place") == place
        held = here & F.col("value").isNotNull()
        aggregates += [
            F.count(F.when(held, 1)).alias(f"count_{index}"),
            F.min(F.when(held, first_hash)).alias(f"first_{index}"),
            F.min(F.when(held, second_hash)).alias(f"second_{index}"),
            F.max(F.when(here, F.col("offset"))).alias(f"offset_{index}"),
        ]
    indexes = range(compared)
    once = _all(F.col(f"count_{index}") == 1 for index in indexes)
    same = _all(
        F.col(f"{name}_0").eqNullSafe(F.col(f"{name}_{index}")) for name in ("first", "second") for index in indexes[1:]
    )
    held_somewhere = _any(F.col(f"count_{index}") > 0 for index in indexes)
    in_flight: Column = F.lit(False)  # noqa: FBT003 - a literal column
    if fence is not None:
        touched = F.col(f"offset_{places.index(fence[0])}")
        mirrored = F.coalesce("offset_0", F.lit(fence[1]))
        in_flight = F.coalesce(touched > mirrored, F.lit(False)) & _all(  # noqa: FBT003 - a literal column
            F.col(f"count_{index}") <= 1 for index in indexes
        )
    grouped = (
        entities.groupBy("kind", "key")
        .agg(*aggregates)
        .where(held_somewhere)
        .withColumn("flagged", ~(once & same))
        .withColumn("in_flight", F.col("flagged") & in_flight)
    )
    grouped = grouped.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts, keys, flagged_counts, in_flight_count = _totals(grouped, places[:compared])
        flagged = (
            _flagged(grouped, places, "flagged and not in_flight", MAXIMUM_FLAGGED)
            if any(flagged_counts.values())
            else []
        )
        if in_flight_count:
            flagged += _flagged(grouped, places, "in_flight", MAXIMUM_IN_FLIGHT)
    finally:
        grouped.unpersist()
    if values:
        flagged = with_values(rows, leg, flagged)
    return Comparison(places[:compared], counts, keys, flagged_counts, flagged, in_flight_count)


def _entities(rows: DataFrame, leg: Leg, places: Sequence[str]) -> DataFrame:
    return rows.where((F.col("leg") == str(leg)) & F.col("place").isin(list(places)) & ~F.col("kind").startswith("$"))


def with_values(rows: DataFrame, leg: Leg, flagged: Sequence[Flagged]) -> list[Flagged]:
    """Return flagged entities with their values in each place."""
    if not flagged:
        return []
    places = list(flagged[0].copies)
    held = _entities(rows, leg, places).where(F.col("value").isNotNull())
    identities = [(entity.kind.value, entity.key) for entity in flagged]
    if len(identities) <= _FEW_KEYS:
        held = held.where(F.col("key").isin([key for _, key in identities]))
    else:
        keys = rows.sparkSession.createDataFrame(identities, "kind string, key string")
        held = held.join(F.broadcast(keys), ["kind", "key"], "left_semi")
    values: dict[tuple[str, str, str], str] = {}
    for row in held.select("kind", "key", "place", "value").collect():
        values.setdefault((row["kind"], row["key"], row["place"]), row["value"])
    return [
        Flagged(
            entity.kind,
            entity.key,
            {
                place: replace(copy, value=values.get((entity.kind, entity.key, place)))
                for place, copy in entity.copies.items()
            },
            entity.in_flight,
        )
        for entity in flagged
    ]


def _totals(
    grouped: DataFrame, places: Sequence[str]
) -> tuple[dict[EntityKind, dict[str, int]], dict[EntityKind, int], dict[EntityKind, int], int]:
    totals = grouped.groupBy("kind").agg(
        F.count(F.lit(1)).alias("keys"),
        F.count(F.when(F.col("flagged") & ~F.col("in_flight"), 1)).alias("flagged"),
        F.count(F.when(F.col("in_flight"), 1)).alias("in_flight"),
        *(F.sum(f"count_{index}").alias(f"count_{index}") for index in range(len(places))),
    )
    counts: dict[EntityKind, dict[str, int]] = {}
    keys: dict[EntityKind, int] = {}
    flagged: dict[EntityKind, int] = {}
    in_flight = 0
    for row in totals.collect():
        kind = EntityKind(row["kind"])
        counts[kind] = {place: row[f"count_{index}"] for index, place in enumerate(places)}
        keys[kind] = row["keys"]
        flagged[kind] = row["flagged"]
        in_flight += row["in_flight"]
    return counts, keys, flagged, in_flight


def _flagged(grouped: DataFrame, places: Sequence[str], condition: str, limit: int) -> list[Flagged]:
    rows = grouped.where(condition).orderBy("kind", "key").limit(limit).collect()
    return [
        Flagged(
            EntityKind(row["kind"]),
            row["key"],
            {place: Copy(row[f"count_{index}"], None, row[f"offset_{index}"]) for index, place in enumerate(places)},
            row["in_flight"],
        )
        for row in rows
    ]


def _all(conditions: Any) -> Column:
    result = F.lit(True)  # noqa: FBT003 - a literal column
    for condition in conditions:
        result &= condition
    return result


def _any(conditions: Any) -> Column:
    result = F.lit(False)  # noqa: FBT003 - a literal column
    for condition in conditions:
        result |= condition
    return result
