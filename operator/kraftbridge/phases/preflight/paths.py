"""Findings about the ways from the controllers' pods to the brokers' inter-broker listeners. Pure.

A controller in migration mode sends LeaderAndIsr, UpdateMetadata and StopReplica to the inter-broker listener of each
ZooKeeper-mode broker (KIP-866, "Controller RPCs"; ``MigrationPropagator``). A NetworkPolicy of the brokers' chart that
admits brokers and clients keeps it out, and Kafka says so only after the takeover, when no broker learns of a change.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftbridge.constants import LABEL_MIGRATION, LABEL_ROLE
from kraftbridge.models.catalogue import Code
from kraftbridge.models.observation import Path, Paths, Unobserved
from kraftbridge.models.status import FindingStatus, finding, first
from kraftbridge.phases.draft import StepContext

_NAMED = 3


def findings(step: StepContext) -> Iterator[FindingStatus]:
    """Find brokers that a controller does not reach, and ways that were not tried."""
    paths = step.observation.paths
    if isinstance(paths, Unobserved):
        yield finding(Code.INTER_BROKER_PATH_UNKNOWN, "controllers", reason=paths)
        return
    controllers = step.spec.controllers.node_ids
    for controller in controllers:
        ways = _of_controller(paths, controller)
        if isinstance(ways, Unobserved):
            yield finding(Code.INTER_BROKER_PATH_UNKNOWN, f"controller/{controller}", reason=ways)
    for pod, broker in sorted(step.status.broker_ids.items(), key=lambda item: item[1]):
        yield from _to_broker(step, paths, pod, broker)


def _of_controller(paths: Paths, controller: int) -> dict[int, Path | Unobserved] | Unobserved:
    ways = paths.tried.get(controller, Unobserved(f"controller {controller}", "its pod was not asked"))
    return ways if isinstance(ways, Unobserved) else dict(ways)


def _to_broker(step: StepContext, paths: Paths, pod: str, broker: int) -> Iterator[FindingStatus]:
    closed: dict[str, Path] = {}
    for controller in step.spec.controllers.node_ids:
        ways = _of_controller(paths, controller)
        if isinstance(ways, Unobserved):
            continue
        way = ways.get(broker, Unobserved(f"broker {broker}", "no connection to it was tried"))
        if isinstance(way, Unobserved):
            yield finding(Code.INTER_BROKER_PATH_UNKNOWN, f"broker/{broker}", reason=way)
            return
        if way.failure:
            closed[_pod_of(step, controller)] = way
    if not closed:
        return
    address = next(iter(closed.values())).address
    yield finding(
        Code.INTER_BROKER_PATH_CLOSED,
        f"broker/{broker}",
        address=address,
        listener=paths.listener,
        pods=first((f"{name} ({way.failure})" for name, way in closed.items()), _NAMED),
        policies=_policies(paths, pod, tuple(closed)),
        labels=f"{LABEL_MIGRATION}={step.identity.name} and {LABEL_ROLE}=controller",
        port=address.rpartition(":")[2],
    )


def _pod_of(step: StepContext, controller: int) -> str:
    name = "controller" if step.status.controllers is None else step.status.controllers.name
    return f"{name}-{controller}"


def _policies(paths: Paths, broker: str, controllers: tuple[str, ...]) -> str:
    """Say which NetworkPolicies may close a way: of the broker's pod what comes in, of the others what goes out."""
    if isinstance(paths.policies, Unobserved):
        return f"Which NetworkPolicies select pod {broker} is not known ({paths.policies})"
    selecting = {pod: paths.policies[pod] for pod in (broker, *controllers) if paths.policies.get(pod)}
    if broker not in paths.policies:
        return f"NetworkPolicies that select pod {broker} were not looked for"
    if not selecting:
        return (
            f"No NetworkPolicy selects pod {broker}: look at the policies of the network plugin, "
            "and at whether the broker listens at this address"
        )
    words = "; ".join(f"pod {pod} is selected by {first(names)}" for pod, names in selecting.items())
    return f"NetworkPolicies: {words}"
