"""What is left to hand over after ``Completed``: guard, missing settings, values for the next release. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.objects import section
from kraftbridge.models.phase import Phase
from kraftbridge.plugin.session import PluginError, ReadMigration
from kraftbridge.storage.ports import KubernetesPort


def final_manifest(kubernetes: KubernetesPort, migration: ReadMigration) -> dict[str, str]:
    """Return the files of the final manifest by name.

    Raises
    ------
    PluginError
        The migration is not completed, or the ConfigMap was deleted.
    """
    name = migration.status.final_manifest
    if migration.status.phase not in (Phase.COMPLETED, Phase.KAFKA4) or not name:
        raise PluginError(
            f"{migration.name} is in {migration.status.phase}: "
            "the final manifest is written when the migration is Completed"
        )
    config_map = kubernetes.get("v1", "ConfigMap", migration.namespace, name)
    if config_map is None:
        raise PluginError(f"ConfigMap {migration.namespace}/{name} with the final manifest does not exist (any more)")
    return {str(file): str(text) for file, text in section(config_map, "data").items()}


def guard_lines(migration: ReadMigration) -> Iterator[str]:
    """Yield what the guard does now, and what the pod templates lack."""
    hand_over = migration.status.hand_over
    handed_over = condition(migration.status.conditions, ConditionType.HANDED_OVER)
    if hand_over is None:
        yield f"guard: not set up{'' if handed_over is None else f' ({handed_over.message})'}"
        return
    if hand_over.ended_at is not None:
        words = "" if handed_over is None else f" ({handed_over.reason})"
        yield f"guard: ended at {hand_over.ended_at:%Y-%m-%d %H:%M:%S} UTC{words}"
        if hand_over.cleaned_at is not None:
            since = f"{hand_over.cleaned_at:%Y-%m-%d %H:%M:%S} UTC"
            yield f"controllers: without the operator's image since {since}; controllers.yaml shows them as they are"
        return
    reason = None if handed_over is None else handed_over.reason
    yield f"guard: {_GUARD.get(reason, _STANDS)}"
    yield from (f"missing: {setting}" for setting in hand_over.missing)
    for stateful_set in hand_over.stateful_sets:
        needed = [variable.words for variable in stateful_set.variables]
        if stateful_set.volume:
            needed.append(f"volume {stateful_set.volume} with {stateful_set.mounted}")
        place = f"StatefulSet {stateful_set.name}, container {stateful_set.container}"
        yield from (f"{place}: needs {words}" for words in needed)


_STANDS: Final = "stands; the admission policy rejects a pod template of the brokers that is not for KRaft"
_GUARD: Final[dict[str | None, str]] = {
    None: "not known yet; the operator has not written the condition HandedOver",
    Reason.NOT_GUARDED: "no admission policy rejects a pod template of the brokers that is not for KRaft",
    Reason.TEMPLATE_NOT_KRAFT: (
        "a pod template of the brokers lacks what KRaft needs; a broker that restarts with it leaves the cluster"
    ),
}
"""What the guard does, by the reason of the condition HandedOver."""


def values_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files with values for charts."""
    return {name: text for name, text in sorted(files.items()) if name.startswith("values-")}
