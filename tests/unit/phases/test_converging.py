"""One function says what the controllers lack next, for every way in which they change what they run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    CONTROLLER_IDS,
    CONTROLLERS,
    LEASE,
    NOW,
    STATES_CREATED,
    Situation,
    controllers_workload,
    issued_listener,
    open_gate,
    rolling,
    with_pods,
    zookeeper,
)
from tests.unit.phases.test_rollback import isolated

from kraftbridge.models.decision import AT_ONCE_SECONDS, Action, ApplyControllers, RemoveConfigurations, RestartPod
from kraftbridge.models.observation import ControllersWorkload, Unobserved
from kraftbridge.models.phase import ControllerMode, Phase
from kraftbridge.models.status import (
    ControllersChange,
    HandOverStatus,
    MigrationOffset,
    RenderedControllers,
    tuned_controllers,
)
from kraftbridge.phases.draft import Draft
from kraftbridge.phases.nodes.converging import (
    STARTING_FOR,
    Pace,
    configure_controllers,
    down_as_wanted,
    lack_of,
    reconcile_controllers,
    remove_superseded,
)
from kraftbridge.phases.nodes.restarts import CONTROLLER_GRACE_SECONDS

DOWN = {"ready": False, "ready_since": None}
OLD = {"configuration": "Migration-older", "revision": "rev-older"}


def draft_of(workload: ControllersWorkload | Unobserved, **known: Any) -> Draft:
    """Return a step in dual-write whose controllers are like that."""
    situation = open_gate(Phase.DUAL_WRITE).observing(controllers=workload)
    controllers = situation.status.controllers
    assert controllers is not None
    situation = situation.with_status(controllers=controllers.model_copy(update=known))
    return Draft(situation.identity, situation.spec, situation.observation, situation.now, situation.status)


def names(*ordinals: int) -> list[str]:
    return [f"{CONTROLLERS}-{ordinal}" for ordinal in ordinals]


def with_set(workload: ControllersWorkload, **changes: Any) -> ControllersWorkload:
    assert workload.stateful_set is not None
    return replace(workload, stateful_set=replace(workload.stateful_set, **changes))


FINE = controllers_workload()
OUTDATED = with_pods(FINE, *CONTROLLER_IDS, **OLD)
ONE_DOWN = with_pods(OUTDATED, 3002, **DOWN)
TRIED_AND_DOWN = with_pods(
    with_pods(OUTDATED, 3001, 3002, **DOWN), 3001, configuration="Migration-hash", revision="rev-Migration"
)


@pytest.mark.parametrize("pace", Pace)
def test_controllers_that_are_what_is_wanted_lack_nothing(pace: Pace) -> None:
    draft = draft_of(FINE)
    assert reconcile_controllers(draft, pace) is None
    assert draft.actions == []


@pytest.mark.parametrize("pace", Pace)
@pytest.mark.parametrize(
    ("workload", "known", "applies"),
    [
        (with_set(OUTDATED, drift=("configuration",)), {}, True),
        (OUTDATED, {"mode": ControllerMode.FINAL}, True),
        (with_set(OUTDATED, observed=False), {}, False),
        (replace(OUTDATED, stateful_set=None), {"format_allowed": True}, True),
        (replace(OUTDATED, stateful_set=None), {}, False),
        (Unobserved("the controllers", "no answer"), {}, False),
    ],
    ids=["another writer", "another mode", "not observed", "not created yet", "deleted", "unknown"],
)
def test_no_pod_is_replaced_before_the_objects_are_what_is_wanted(
    workload: ControllersWorkload | Unobserved, known: dict[str, Any], *, applies: bool, pace: Pace
) -> None:
    draft = draft_of(workload, **known)
    lack = reconcile_controllers(draft, pace)
    assert lack is not None
    assert lack.objects is applies
    assert [type(action) for action in draft.actions] == [ApplyControllers] * applies


@pytest.mark.parametrize(
    ("workload", "pace", "replaced", "serving"),
    [
        (OUTDATED, Pace.DOWN, [], None),
        (OUTDATED, Pace.NEXT, [], 3001),
        (OUTDATED, Pace.ALL, [3000, 3001, 3002], None),
        (ONE_DOWN, Pace.DOWN, [3002], None),
        (ONE_DOWN, Pace.NEXT, [3002], None),
        (TRIED_AND_DOWN, Pace.DOWN, [], None),
        (TRIED_AND_DOWN, Pace.NEXT, [], 3002),
        (with_pods(FINE, 3000, **OLD), Pace.NEXT, [], 3000),
    ],
    ids=["down", "next", "all", "one is down", "one is down first", "tried", "tried, next", "the active one last"],
)
def test_the_pace_says_who_leaves_what_it_runs(
    workload: ControllersWorkload, pace: Pace, replaced: list[int], serving: int | None
) -> None:
    draft = draft_of(workload)
    lack = reconcile_controllers(draft, pace)
    stopped = lack.serving.ordinal if lack is not None and lack.serving is not None else None
    assert [action.pod for action in draft.actions if isinstance(action, RestartPod)] == names(*replaced)
    assert stopped == serving


def test_those_that_lead_nothing_yet_end_in_their_own_time() -> None:
    def seconds(**known: Any) -> set[int]:
        draft = draft_of(replace(OUTDATED, format_allowed=True), **known)
        reconcile_controllers(draft, Pace.ALL)
        return {action.grace_seconds for action in draft.actions if isinstance(action, RestartPod)}

    assert seconds(format_allowed=True) == {CONTROLLER_GRACE_SECONDS}
    assert seconds() == {AT_ONCE_SECONDS}


def test_a_pod_that_begins_to_run_may_serve_before_it_is_replaced() -> None:
    def replaced(since: timedelta, trouble: str = "") -> bool:
        workload = with_pods(ONE_DOWN, 3002, seen_since=NOW - since, trouble=trouble)
        lack = lack_of(draft_of(workload), Pace.DOWN)
        return lack is not None and bool(lack.pods)

    late = STARTING_FOR + timedelta(seconds=1)
    assert [replaced(STARTING_FOR), replaced(STARTING_FOR, "ImagePullBackOff"), replaced(late)] == [False, True, True]


def test_where_a_secret_is_all_that_changed_the_recorded_pods_restart_and_nothing_is_written() -> None:
    recorded = {"3000": f"uid-{CONTROLLERS}-3000-rev-Migration", "3001": "gone"}
    draft = draft_of(with_set(FINE, drift=("configuration",)))
    lack = reconcile_controllers(draft, Pace.ALL, restarting=recorded)
    assert lack is not None
    assert [action.pod for action in draft.actions if isinstance(action, RestartPod)] == names(3000)
    assert not [action for action in draft.actions if isinstance(action, ApplyControllers)]


def test_a_pod_that_is_down_as_it_is_wanted_is_none_to_replace() -> None:
    assert down_as_wanted(draft_of(ONE_DOWN)) is None
    pod = down_as_wanted(draft_of(TRIED_AND_DOWN))
    assert pod is not None
    assert pod.ordinal == 3001


# ------------------------------------------------------------------------------------------------- phases that use it


def restarted(actions: tuple[Action, ...]) -> list[int]:
    return [action.node_id for action in actions if isinstance(action, RestartPod)]


def test_in_finalizing_a_controller_that_is_down_gets_the_final_configuration_first() -> None:
    """It cannot come back as it was (its image is gone), and no other one restarts before it is back."""
    down = with_pods(controllers_workload(ControllerMode.FINAL, 1), 3002, **DOWN, trouble="ImagePullBackOff")
    assert restarted(open_gate(Phase.FINALIZING).observing(controllers=down).decide().actions) == [3002]


def renewed(situation: Situation, workload: ControllersWorkload) -> Situation:
    """Return a certificate's renewal half-way, after the StatefulSet was handed over."""
    known = situation.status.controllers
    assert known is not None
    assert workload.stateful_set is not None
    tuned = tuned_controllers(situation.spec, situation.status)
    settings = situation.status.broker_settings
    before, to = (
        RenderedControllers.of(tuned, {"listener": text}, broker_settings=settings) for text in ("old", "new")
    )
    pods = {str(pod.ordinal): pod.uid for pod in workload.stateful_set.pods}
    change = ControllersChange(to=to, before=before, started_at=NOW, pods=pods)
    sets = tuple(replace(item, lease=LEASE) for item in situation.observation.seen_sets if item.name != CONTROLLERS)
    return situation.with_status(controllers=known.model_copy(update={"rendered": to, "change": change})).observing(
        controllers=with_set(workload, last_writer="kubectl"), stateful_sets=sets
    )


def test_after_the_end_a_controller_that_is_down_reads_the_renewed_secret_first() -> None:
    fine = open_gate(Phase.COMPLETED).with_status(given_back_at=NOW)
    down = with_pods(controllers_workload(ControllerMode.FINAL), 3002, **DOWN, trouble="CrashLoopBackOff")
    actions = renewed(fine, down).decide().actions
    assert restarted(actions) == [3002]
    assert not [action for action in actions if isinstance(action, ApplyControllers) and not action.only]


def test_voters_on_another_port_restart_all_at_once() -> None:
    case = isolated(done=0)
    assert restarted(case.decide().actions) == [*CONTROLLER_IDS]


def standing() -> Situation:
    """Return a mirror that stands still, which a controller failover heals."""
    stuck = MigrationOffset(
        offset="4711", seen_at=NOW, moved_at=NOW - timedelta(minutes=30), standing_since=NOW - timedelta(minutes=30)
    )
    return (
        open_gate(Phase.DUAL_WRITE)
        .with_status(migration_offset=stuck)
        .observing(zookeeper=zookeeper(taken_over=True, offset=4_711), outcomes=STATES_CREATED)
    )


def unregistered() -> Situation:
    """Return a voter that follows its leader and did not register with it."""
    fine = rolling(Phase.TAKING_OVER, 1).observing(registered_controllers=frozenset({3000, 3001}))
    workload = with_pods(controllers_workload(), *CONTROLLER_IDS, ready_since=NOW - timedelta(hours=1))
    return fine.observing(controllers=workload)


ONE_AT_A_TIME = {
    "final configuration": lambda: open_gate(Phase.FINALIZING).observing(
        controllers=controllers_workload(ControllerMode.FINAL, 1)
    ),
    "failover": standing,
    "registration": unregistered,
}


@pytest.mark.parametrize("issued", ["unknown", "broken"])
@pytest.mark.parametrize("reason", ONE_AT_A_TIME)
def test_no_controller_that_serves_restarts_onto_a_secret_with_which_it_would_not_come_back(
    reason: str, issued: str
) -> None:
    fine = issued_listener()
    broken = replace(fine, controllers=replace(fine.controllers, problem="its certificate is of another authority"))
    seen = Unobserved("Secret of the listener", "timeout") if issued == "unknown" else broken
    case = ONE_AT_A_TIME[reason]().observing(issued=fine)
    assert len(restarted(case.decide().actions)) == 1
    decision = case.observing(issued=seen).decide()
    assert restarted(decision.actions) == []
    assert decision.status.operation is None
    assert "no controller restarts: " in decision.status.message


KEPT, OTHER = f"{CONTROLLERS}-migration-0123456789", f"{CONTROLLERS}-migration-abcdef0123"
BOTH = replace(FINE, configurations={KEPT: "uid-1", OTHER: "uid-2"}, mounted=frozenset({KEPT}))


def removed(draft: Draft) -> list[Action]:
    remove_superseded(draft)
    return [action for action in draft.actions if isinstance(action, RemoveConfigurations)]


def test_a_configuration_that_nothing_mounts_goes() -> None:
    assert removed(draft_of(BOTH)) == [RemoveConfigurations(CONTROLLERS, ((OTHER, "uid-2"),))]


@pytest.mark.parametrize(
    "workload",
    [
        Unobserved("controllers", "no answer"),
        replace(BOTH, stateful_set=None),
        replace(BOTH, mounted=None),
        replace(BOTH, configurations={}),
        replace(BOTH, mounted=frozenset({KEPT, OTHER})),
        with_set(BOTH, observed=False),
        with_set(BOTH, deleting=True),
    ],
)
def test_what_is_mounted_or_not_known_keeps_every_configuration(workload: ControllersWorkload | Unobserved) -> None:
    assert removed(draft_of(workload)) == []


def test_a_step_that_applies_the_controllers_deletes_none() -> None:
    draft = draft_of(BOTH)
    configure_controllers(draft)
    assert removed(draft) == []
    draft = draft_of(BOTH)
    configure_controllers(draft, only=(f"ConfigMap/{CONTROLLERS}-format",))
    assert len(removed(draft)) == 1


@pytest.mark.parametrize(
    ("known", "clean", "goes"),
    [
        ({}, False, True),
        ({"ended_at": NOW}, False, False),
        ({"ended_at": NOW}, True, True),
        ({"ended_at": NOW, "cleaned_at": NOW}, True, False),
    ],
)
def test_after_the_hand_over_they_are_their_owners(known: dict[str, Any], clean: bool, goes: bool) -> None:
    draft = draft_of(BOTH)
    controllers = draft.status.controllers
    assert controllers is not None
    rendered = RenderedControllers.of(tuned_controllers(draft.spec, draft.status), clean=clean)
    draft.update(controllers=controllers.model_copy(update={"rendered": rendered}))
    draft.update(hand_over=HandOverStatus(guarded=True, **known))
    assert bool(removed(draft)) is goes
