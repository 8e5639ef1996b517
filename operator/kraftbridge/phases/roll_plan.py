"""The plan of the rolling restarts: how many brokers are down together, in how many steps, for how long. Pure.

Preflight records it before anything starts. A rehearsal's page and ``kubectl kraftbridge plan`` show the same lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from kraftbridge.models.assignments import Assignments
from kraftbridge.models.observation import Unobserved
from kraftbridge.models.phase import FORWARD, LAST_PHASE, BrokerMode, Phase
from kraftbridge.models.status import PlannedRoll, RollPlanStatus
from kraftbridge.phases import observed, upgrading
from kraftbridge.phases.draft import Draft, StepContext
from kraftbridge.phases.nodes import address_caches, batches

ASSUMED_SECONDS: Final = 60
"""Time for a broker to stop, start and catch up, until restarts of this cluster were measured."""
HAND_OVER_SECONDS: Final = 10
"""Time until a broker of a batch has handed over its leaders, so that the next one is stopped."""


def take_plan(draft: Draft) -> None:
    """Record the rolling restarts on the way to the target; what was recorded stays while the brokers are not known."""
    broker_ids = draft.registered_broker_ids() or draft.status.broker_ids
    if not broker_ids:
        return
    if draft.spec.strategy.in_batches and isinstance(draft.observation.assignments, Unobserved):
        return
    plan = plan_of(draft, broker_ids)
    if plan != draft.status.roll_plan:
        draft.update(roll_plan=plan)


def plan_of(step: StepContext, broker_ids: Mapping[str, int]) -> RollPlanStatus:
    """Return the plan of the rolling restarts of these brokers, given by pod."""
    measured = _measured_seconds(step)
    seconds = ASSUMED_SECONDS if measured is None else measured
    rolls = tuple(_planned(step, phase, mode, broker_ids, seconds) for phase, mode in _rolls_ahead(step))
    return RollPlanStatus(rolls=rolls, seconds_per_restart=seconds, measured=measured is not None)


def _rolls_ahead(step: StepContext) -> list[tuple[Phase, BrokerMode]]:
    """Return the rolling restarts on the way to the target: the phase, and the mode to which every broker restarts."""
    last = LAST_PHASE[step.spec.target]
    if last not in FORWARD:
        return []
    ahead = [phase for phase in FORWARD[: FORWARD.index(last) + 1] if phase.row.restarts_nodes and phase.reversible]
    # The last phase restarts controllers alone, and there is no way back from it.
    rolls: list[tuple[Phase, BrokerMode]] = []
    for phase in ahead:
        if phase is Phase.UPGRADING_BROKERS:
            rolls += [(phase, mode) for mode in upgrading.bridge_modes(step.status)]
        elif phase.row.brokers is not None:
            rolls.append((phase, phase.row.brokers))
    return rolls


def _planned(
    step: StepContext, phase: Phase, mode: BrokerMode, broker_ids: Mapping[str, int], seconds: int
) -> PlannedRoll:
    znode = observed.controller_znode(step) if mode is not BrokerMode.KRAFT else None
    holder = None if znode is None else znode.broker_id
    order = sorted(broker_ids.values(), key=lambda broker: (broker == holder, broker))
    seen = step.observation.assignments
    most = step.spec.strategy.most_down(len(order))
    found = Assignments(()) if isinstance(seen, Unobserved) else seen.by_broker(broker_ids)
    steps = batches.planned(order, found, most, holder, copies=phase is Phase.TAKING_OVER)
    pauses = [address_caches.pause_seconds(step, phase, mode, is_last=batch is steps[-1]) for batch in steps]
    total = sum(seconds + HAND_OVER_SECONDS * (len(batch.brokers) - 1) for batch in steps) + sum(pauses)
    return PlannedRoll(
        mode=mode,
        restarts=len(order),
        steps=len(steps),
        largest=max(len(batch.brokers) for batch in steps),
        pause_seconds=max(pauses),
        minutes=-(-total // 60),
        limit=_limit(steps) if most > 1 else "",
    )


def _limit(steps: Sequence[batches.Batch]) -> str:
    """Return what limits most batches, apart from those brokers that go alone in any case."""
    limits = Counter(batch.limit for batch in steps if batch.limit and "goes alone" not in batch.limit)
    return limits.most_common(1)[0][0] if limits else ""


def _measured_seconds(step: StepContext) -> int | None:
    """Return the median of the brokers' restarts that were measured, None if there are none."""
    brokers = set(step.status.broker_ids.values())
    taken = [
        (record.finished_at - record.began_at).total_seconds()
        for record in step.status.impact.restarts
        if record.node_id in brokers
    ]
    return round(median(taken)) if taken else None
