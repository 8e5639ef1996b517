"""Tells from an ended copy of a broker's pod how its image would start Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kraftbridge.builders import dry_start_pods as builder
from kraftbridge.builders.dry_start_pods import CopyFacts
from kraftbridge.copies.dry_start import agent_loaded, kafka_start, last_words, programs
from kraftbridge.models.dry_start import ContainerImage, CopyOutcome
from kraftbridge.models.objects import entries, section
from kraftbridge.models.pod_problem import UNSTARTED
from kraftbridge.models.status import first
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.pods.api_answers import NOT_ANSWERED
from kraftbridge.pods.fence import EXIT_REACHED
from kraftbridge.services.observe import workloads
from kraftbridge.storage.ports import Object

_MAXIMUM_TEXT: Final = 300


def outcome_of(
    copy: CopyFacts,
    overlay: Mapping[str, str],
    pod: Object | None,
    read_log: Callable[[str], str],
    limit_seconds: float,
) -> CopyOutcome:
    """Return what a copy shows.

    Parameters
    ----------
    overlay
        Settings that its mode sets.
    pod
        None if it is gone.
    read_log
        Returns the log of a container, ``""`` if it has none.
    limit_seconds
        How long it was waited for.
    """
    outcome = CopyOutcome(copy.key, copy.broker_id, None, overlay=overlay)
    if pod is None:
        return replace(outcome, problem="the copy is gone", judged=False)
    outcome = replace(outcome, images=_images(copy, pod))
    if problem := _disruption(pod):
        return replace(outcome, problem=problem, judged=False)
    for container in entries(pod, "spec", "initContainers"):
        code = _own_end(pod, container["name"])
        # The stand-in serves until the kubelet ends it; while it does not, the next init container does not begin.
        if code == 0 or container["name"] == builder.API:
            continue
        text = read_log(container["name"])
        reached = reached_by(pod, container["name"])
        if code == EXIT_REACHED and reached:
            return _failed(outcome, f"the copy reaches {', '.join(reached)} although the NetworkPolicy closes it")
        how = _end(code, "did not end")
        if trouble := workloads.pod_trouble(pod):
            how += f" ({trouble})"
        outcome = replace(outcome, judged=_has_run(pod, container["name"]))
        return _failed(outcome, f"init container {container['name']} {how}{_unanswered(pod, read_log)}", text)
    text = read_log(copy.container)
    start = kafka_start(text) or kafka_start(_message(pod, copy.container))
    if start is None:
        code = _own_end(pod, copy.container)
        how = workloads.pod_trouble(pod) or _end(code, f"did not end in {limit_seconds:.0f} s")
        problem = f"container {copy.container} {how} and never came to Kafka's start"
        if code is not None and not agent_loaded(text):
            problem += (
                ". Its log shows no JVM that loaded the agent: "
                "it ended before one started, the image has none, "
                "or its entrypoint clears JAVA_TOOL_OPTIONS and _JAVA_OPTIONS"
            )
        return _failed(replace(outcome, judged=_has_run(pod, copy.container)), problem, text)
    own = section(pod, "status").get("podIP")
    theirs = section(copy.live, "status").get("podIP")
    aliases = {pod["metadata"]["name"]: copy.key.pod}
    if own and theirs:
        aliases[own] = theirs
    return replace(outcome, start=start, aliases=aliases)


_DISRUPTED: Final = "DisruptionTarget"
"""Condition of a pod that was preempted, evicted or deleted, or whose node went (Kubernetes 1.26)."""
_PAST_DEADLINE: Final = "DeadlineExceeded"
"""Reason of a pod's end after ``activeDeadlineSeconds``: its own process did not end."""


def _disruption(pod: Object) -> str:
    """Return why a copy ended without its image's doing: it was evicted, or the runtime did not start a container."""
    status = section(pod, "status")
    for condition in entries(status, "conditions"):
        if condition["type"] == _DISRUPTED and condition.get("status") == "True":
            words = f"the copy was stopped: {condition.get('reason', '')}: {condition.get('message', '')}"
            return words[:_MAXIMUM_TEXT]
    if status.get("phase") == "Failed" and status.get("reason", _PAST_DEADLINE) != _PAST_DEADLINE:
        return f"the copy was stopped: {status['reason']}: {status.get('message', '')}"[:_MAXIMUM_TEXT]
    for container in statuses(pod):
        ended = section(container, "state", "terminated")
        if ended.get("reason") in UNSTARTED:
            words = f"container {container['name']} was not started: {ended['reason']}: {ended.get('message', '')}"
            return words[:_MAXIMUM_TEXT]
    return ""


def _unanswered(pod: Object, read_log: Callable[[str], str]) -> str:
    """Return what init containers asked the API server for in vain, in words; ``""`` for nothing."""
    if builder.API not in _containers(pod):
        return ""
    lines = read_log(builder.API).splitlines()
    asked = dict.fromkeys(line.partition(NOT_ANSWERED)[2] for line in lines if NOT_ANSWERED in line)
    return f" after it asked the API server for {first(asked)}, which a copy is not answered" if asked else ""


def _failed(outcome: CopyOutcome, problem: str, text: str = "") -> CopyOutcome:
    return replace(outcome, problem=problem, words=last_words(text), programs=programs(text))


def statuses(pod: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the statuses of a pod's containers, init containers first."""
    return (*entries(pod, "status", "initContainerStatuses"), *entries(pod, "status", "containerStatuses"))


def _containers(pod: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    containers = (*entries(pod, "spec", "initContainers"), *entries(pod, "spec", "containers"))
    return {container["name"]: container for container in containers}


def _images(copy: CopyFacts, pod: Object) -> tuple[ContainerImage, ...]:
    """Return the images of those containers in a copy that the running pod has, too, each with the running pod's.

    A template that no pod was made from yet may have more containers.
    Nothing of them runs that their image could differ from.
    """
    live_ids = {s["name"]: str(s.get("imageID") or "") for s in statuses(copy.live)}
    copy_ids = {s["name"]: str(s.get("imageID") or "") for s in statuses(pod)}
    live = _containers(copy.live)
    copied = _containers(pod)
    return tuple(
        ContainerImage(
            container=name,
            live=str(live[name].get("image", "")),
            live_id=live_ids.get(name, ""),
            copy=str(container.get("image", "")),
            copy_id=copy_ids.get(name, ""),
            live_node=str(section(copy.live, "spec").get("nodeName", "")),
            copy_node=str(pod["spec"].get("nodeName", "")),
        )
        for name, container in copied.items()
        if name not in (builder.PREPARE, builder.API) and name in live
    )


def _state(pod: Object, container: str) -> Mapping[str, Any]:
    status = next((s for s in statuses(pod) if s["name"] == container), None)
    return section(status, "state")


def _terminated(pod: Object, container: str) -> Mapping[str, Any]:
    return section(_state(pod, container), "terminated")


def _has_run(pod: Object, container: str) -> bool:
    """Return whether a container runs or has run: what waits for an image, a volume or a node shows nothing."""
    state = _state(pod, container)
    return "running" in state or "terminated" in state


def exit_code(pod: Object, container: str) -> int | None:
    """Return the exit code of a container, None while it has not ended."""
    code = _terminated(pod, container).get("exitCode")
    return None if code is None else int(code)


def _own_end(pod: Object, container: str) -> int | None:
    """Return the exit code of a container that ended by itself, None otherwise: past its deadline a pod is ended."""
    is_past_deadline = section(pod, "status").get("reason") == _PAST_DEADLINE
    code = exit_code(pod, container)
    return None if is_past_deadline and code != 0 else code


def _end(code: int | None, unended: str) -> str:
    return unended if code is None else f"ended with code {code}"


def _message(pod: Object, container: str) -> str:
    return str(_terminated(pod, container).get("message") or "")


def reached_by(pod: Object, container: str) -> tuple[str, ...]:
    """Return the addresses that a container which tries the fence could reach, as its termination message tells."""
    try:
        return tuple(str(a) for a in parsed_json(_message(pod, container))["reached"])
    except (ValueError, KeyError, TypeError):
        return ()
