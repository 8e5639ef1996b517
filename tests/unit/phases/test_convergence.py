"""Controllers that are down, isolated or half stopped come to what is wanted, whatever was away in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.observations import (
    CONTROLLERS,
    NOW,
    Situation,
    controller_metrics,
    controllers_workload,
    open_gate,
    rolling,
    with_pods,
    zookeeper,
)
from tests.unit.phases.test_rollback import going_back, isolated

from kraftbridge.models.decision import Action, ApplyControllers, RestartPod, StopControllers
from kraftbridge.models.observation import ControllersWorkload, MigrationZnode, Unobserved
from kraftbridge.models.phase import ControllerMode, Phase, ZkMigrationState
from kraftbridge.models.status import (
    Operation,
    OperationKind,
    PhaseRecord,
    RenderedControllers,
    RollbackStatus,
    tuned_controllers,
)

PULL = "ImagePullBackOff of container kafka: Back-off pulling image registry.old/kafka:3.9.1"
MEMORY = "CrashLoopBackOff of container kafka: back-off, last exit code 3: java.lang.OutOfMemoryError: Java heap space"
GONE = Unobserved("quorum", "no leader")


def acts_of(situation: Situation, steps: int, seconds: float = 2.0) -> tuple[list[Action], Situation]:
    """Return what some steps do while the cluster stays as it is, and the situation afterwards."""
    acts: list[Action] = []
    for _ in range(steps):
        decision = situation.decide()
        acts += decision.actions
        situation = situation.after(decision).later(seconds)
    return acts, situation


# ------------------------------------------------------------------------------------------- a stop that did not happen


@pytest.mark.parametrize("away_seconds", [21, 200, 605, 7200])
@pytest.mark.parametrize("paused", [False, True], ids=["", "paused"])
def test_a_stop_that_the_api_server_never_saw_is_made_again_while_the_controllers_are_isolated(
    away_seconds: int, *, paused: bool
) -> None:
    stopped = isolated(controllers_stopped_at=NOW).asking(paused=paused).later(away_seconds)
    acts, after = acts_of(stopped, 3)
    assert any(isinstance(act, StopControllers) for act in acts)
    assert after.status.rollback is not None
    assert after.status.rollback.isolated_at is not None


def test_a_forgotten_stop_does_not_forget_what_the_migration_itself_removed() -> None:
    stopped = going_back().with_status(
        rollback=RollbackStatus(attempt=1, controllers_stopped_at=NOW, claim_removed_at=NOW)
    )
    record = stopped.later(60).decide().status.rollback
    assert record is not None
    assert (record.controllers_stopped_at, record.claim_removed_at) == (None, NOW)


def test_isolated_controllers_that_cannot_mirror_after_such_a_stop_serve_the_brokers_again() -> None:
    behind = isolated(controllers_stopped_at=NOW).observing(zookeeper=zookeeper(taken_over=True, offset=10))
    acts, _ = acts_of(behind.later(605), 80)
    assert not any(isinstance(act, StopControllers) for act in acts)
    assert any(isinstance(act, ApplyControllers) and act.mode is ControllerMode.MIGRATION for act in acts)


def test_controllers_whose_isolation_nobody_recorded_serve_the_brokers_again() -> None:
    acts, _ = acts_of(isolated().with_status(rollback=None), 3)
    assert any(isinstance(act, ApplyControllers) and act.mode is ControllerMode.MIGRATION for act in acts)


# ------------------------------------------------------------------------------------------------ a voter that is down


def test_the_majority_of_isolated_voters_is_a_quorum_and_mirrors() -> None:
    workload = with_pods(
        controllers_workload(ControllerMode.ISOLATED), 3002, ready=False, ready_since=None, trouble=PULL
    )
    acts, _ = acts_of(isolated().observing(controllers=workload), 3)
    assert any(isinstance(act, StopControllers) for act in acts)


def test_a_minority_of_isolated_voters_does_not() -> None:
    down = with_pods(controllers_workload(ControllerMode.ISOLATED), 3001, 3002, ready=False, ready_since=None)
    acts, _ = acts_of(isolated().observing(controllers=down, quorum=GONE), 3)
    assert not any(isinstance(act, StopControllers) for act in acts)


def test_a_voter_that_still_serves_the_brokers_is_waited_for() -> None:
    acts, _ = acts_of(isolated(done=2), 3)
    assert not any(isinstance(act, StopControllers) for act in acts)


def recorded(situation: Situation, **rendered: Any) -> Situation:
    """Return the same with controllers that were rendered from the present spec, or from a changed one."""
    known = situation.status.controllers
    assert known is not None
    tuned = tuned_controllers(situation.spec, situation.status).model_copy(update=rendered)
    update = {"rendered": RenderedControllers.of(tuned)}
    return situation.with_status(controllers=known.model_copy(update=update))


def restarting(ordinal: int) -> Operation:
    return Operation(
        kind=OperationKind.RESTART_CONTROLLER,
        node_id=ordinal,
        pod=f"{CONTROLLERS}-{ordinal}",
        pod_uid="old",
        started_at=NOW - timedelta(minutes=10),
    )


def in_finalizing() -> Situation:
    down = with_pods(
        controllers_workload(ControllerMode.FINAL, 2), 3001, ready=False, ready_since=None, uid="new", trouble=PULL
    )
    base = recorded(open_gate(Phase.FINALIZING), image="registry.old/kafka:3.9.1").with_status(
        operation=restarting(3001)
    )
    return base.observing(controllers=down)


def before_the_copy() -> Situation:
    base = recorded(rolling(Phase.TAKING_OVER, 3))
    claimed = replace(zookeeper(taken_over=True, offset=-1), migration=MigrationZnode(3000, 2, -1, -1))
    down = with_pods(controllers_workload(), 3001, 3002, ready=False, ready_since=None, trouble=MEMORY)
    metrics = {3000: controller_metrics(ZkMigrationState.PRE_MIGRATION, 0)[3000], 3001: GONE, 3002: GONE}
    return base.observing(
        zookeeper=claimed, controllers=down, quorum=GONE, registered_controllers=GONE, metrics=metrics
    )


def on_the_way_back() -> Situation:
    down = with_pods(controllers_workload(), 3001, ready=False, ready_since=None, uid="new", trouble=PULL)
    visit = PhaseRecord(phase=Phase.ROLLING_BACK, entered_at=NOW - timedelta(minutes=1))
    base = recorded(going_back(controllers=down), image="registry.old/kafka:3.9.1")
    return base.with_status(history=(*base.status.history, visit), verifications=())


def while_a_broker_restarts() -> Situation:
    base = before_the_copy()
    operation = Operation(
        kind=OperationKind.RESTART_BROKER,
        node_id=2,
        pod="kafka-2",
        pod_uid="old",
        started_at=NOW - timedelta(minutes=10),
    )
    return base.with_status(operation=operation)


MENDED = {"heap_options": "-Xmx4g"}


@pytest.mark.parametrize(
    "stuck", [in_finalizing, before_the_copy, on_the_way_back, while_a_broker_restarts], ids=lambda make: make.__name__
)
def test_voters_that_are_down_get_the_corrected_spec_in_every_phase(stuck: Any) -> None:
    situation = stuck()
    controllers = situation.spec.controllers.model_copy(update=MENDED)
    acts, after = acts_of(situation.asking(controllers=controllers), 4)
    assert any(isinstance(act, ApplyControllers) for act in acts)
    known = after.status.controllers
    assert known is not None
    assert known.rendered is not None
    assert known.rendered.heap_options == "-Xmx4g"
    # The templates have the new revision: the voters that are down are replaced, and no running one.
    workload = after.observation.controllers
    assert isinstance(workload, ControllersWorkload)
    down = {pod.ordinal for pod in workload.stateful_set.pods if not pod.ready}
    older = with_pods(workload, *(3000, 3001, 3002), revision="older")
    acts, _ = acts_of(after.observing(controllers=older), 3)
    replaced = {act.node_id for act in acts if isinstance(act, RestartPod)}
    assert replaced == down


@pytest.mark.parametrize("stuck", [in_finalizing, before_the_copy, on_the_way_back], ids=lambda make: make.__name__)
def test_an_unchanged_spec_replaces_nothing(stuck: Any) -> None:
    situation = stuck()
    acts, _ = acts_of(recorded(situation), 4)
    assert not any(isinstance(act, RestartPod) for act in acts)
