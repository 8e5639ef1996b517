"""What is left to hand over after ``Completed``. Pure.

It is the guard, missing settings, and the values for the brokers' next release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kraftbridge.models.conditions import ConditionType, Reason, condition
from kraftbridge.models.phase import Phase
from kraftbridge.plugin.session import Migration, PluginError
from kraftbridge.storage.ports import KubernetesPort


def final_manifest(kubernetes: KubernetesPort, migration: Migration) -> dict[str, str]:
    """Return the files of the final manifest by name.

    Raises
    ------
    PluginError
        The migration is not completed, or the ConfigMap was deleted.
    """
    name = migration.status.final_manifest
    if migration.status.phase is not Phase.COMPLETED or not name:
        raise PluginError(
            f"{migration.name} is in {migration.status.phase}: "
            "the final manifest is written when the migration is Completed"
        )
    config_map = kubernetes.get("v1", "ConfigMap", migration.namespace, name)
    if config_map is None:
        raise PluginError(f"ConfigMap {migration.namespace}/{name} with the final manifest does not exist (any more)")
    return {str(file): str(text) for file, text in (config_map.get("data") or {}).items()}


def guard_lines(migration: Migration) -> Iterator[str]:
    """Yield what the guard does now, and what the pod templates lack."""
    known = migration.status.hand_over
    found = condition(migration.status.conditions, ConditionType.HANDED_OVER)
    if known is None:
        yield f"guard: not set up{f' ({found.message})' if found is not None else ''}"
        return
    if known.ended_at is not None:
        yield (
            f"guard: ended at {known.ended_at:%Y-%m-%d %H:%M:%S} UTC{f' ({found.reason})' if found is not None else ''}"
        )
        return
    if found is None:
        yield "guard: not known yet; the operator has not written the condition HandedOver"
    elif found.reason is Reason.NOT_GUARDED:
        yield "guard: no admission policy rejects a pod template of the brokers that is not for KRaft"
    elif found.reason is Reason.TEMPLATE_NOT_KRAFT:
        yield (
            "guard: a pod template of the brokers lacks what KRaft needs; "
            "a broker that restarts with it leaves the cluster"
        )
    else:
        yield "guard: stands; the admission policy rejects a pod template of the brokers that is not for KRaft"
    yield from (f"missing: {what}" for what in known.missing)
    for each in known.stateful_sets:
        needed = [v.words for v in each.variables]
        if each.volume:
            needed.append(f"volume {each.volume} with {each.mounted}")
        yield from (f"StatefulSet {each.name}, container {each.container}: needs {what}" for what in needed)


def values_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files with values for charts."""
    return {name: text for name, text in sorted(files.items()) if name.startswith("values-")}
