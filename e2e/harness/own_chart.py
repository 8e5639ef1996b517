"""The brokers of the demonstration as a release of their owner's own chart, with its values from before and after the migration."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from e2e.harness.kube import CommandFailedError, Kube, eventually

RELEASE = "brokers"
REFUSED = "has taken its Kafka brokers to KRaft"
CHART = {"apiVersion": "v2", "name": RELEASE, "version": "0.1.0"}
# As most charts do, this one renders the variables of extraEnvVars after its own.
ENVIRONMENT = "{{- concat .Values.env .Values.extraEnvVars | toYaml | nindent 12 }}"
ANNOTATIONS = "{{- toYaml .Values.podAnnotations | nindent 8 }}"


def write_chart(brokers: str, directory: Path) -> list[dict[str, Any]]:
    """Write a chart that renders a StatefulSet of brokers; return the variables that its values have to contain."""
    stateful_set = yaml.safe_load(brokers)
    template = stateful_set["spec"]["template"]
    (container,) = template["spec"]["containers"]
    variables: list[dict[str, Any]] = container["env"]
    container["env"], template["metadata"]["annotations"] = "ENVIRONMENT", "ANNOTATIONS"
    text = yaml.safe_dump(stateful_set, sort_keys=False)
    text = text.replace("env: ENVIRONMENT", f"env: {ENVIRONMENT}").replace(
        "annotations: ANNOTATIONS", f"annotations: {ANNOTATIONS}"
    )
    (directory / "templates").mkdir(parents=True, exist_ok=True)
    (directory / "Chart.yaml").write_text(yaml.safe_dump(CHART))
    (directory / "templates/brokers.yaml").write_text(text)
    return variables


def values_before(variables: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the values with which the chart renders the brokers of before the migration."""
    return {"env": variables, "extraEnvVars": [], "podAnnotations": {}}


def values_after(variables: list[dict[str, Any]], handed_over: dict[str, Any]) -> dict[str, Any]:
    """Return the values with those of the final manifest: variables of the same name are replaced, others are added."""
    wanted = {entry["name"]: entry for entry in handed_over["extraEnvVars"]}
    own = [wanted.pop(entry["name"], entry) for entry in variables]
    return {
        "env": own,
        "extraEnvVars": list(wanted.values()),
        "podAnnotations": handed_over["broker"]["podAnnotations"],
    }


def pods(kube: Kube, namespace: str, stateful_set: str) -> dict[str, str]:
    """Return the UIDs of the pods of a StatefulSet and the revision of its template, once its controller has seen the newest one."""

    def seen() -> bool:
        found = kube.get("statefulset", stateful_set, namespace)
        return found is not None and found["status"]["observedGeneration"] >= found["metadata"]["generation"]

    eventually(seen, f"the controller sees the newest template of StatefulSet {stateful_set}", 30)
    found = kube.get("statefulset", stateful_set, namespace)
    assert found is not None
    selector = ",".join(f"{k}={v}" for k, v in found["spec"]["selector"]["matchLabels"].items())
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kube.list("pods", namespace, selector)}
    # Kubernetes restarts every pod of another revision, one after the other.
    return uids | {"revision": found["status"]["updateRevision"]}


def write_final_manifest(kube: Kube, namespace: str, directory: Path) -> None:
    """Write the files of the final manifest with the plugin.

    Raises
    ------
    CommandFailedError
        The plugin failed.
    """
    plugin = Path(sys.executable).with_name("kubectl-kraftbridge")
    done = subprocess.run(
        [plugin, "hand-over", "-n", namespace, "--output", directory],
        env={**os.environ, **kube.environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CommandFailedError(
            f"kubectl kraftbridge hand-over: exit code {done.returncode}: {done.stdout}{done.stderr}"
        )


def hand_over(kube: Kube, namespace: str, brokers: str, work: Path) -> None:
    """Hand the brokers of a completed migration over to their owner's chart, with the plugin's values, and try a release without them.

    Raises
    ------
    CommandFailedError
        The right release restarted a broker or was refused, or the stale one was not refused.
    """
    name = str(yaml.safe_load(brokers)["metadata"]["name"])
    write_final_manifest(kube, namespace, work / "final-manifest")
    variables = write_chart(brokers, work / "chart")
    handed_over = yaml.safe_load((work / f"final-manifest/values-bitnami-{name}.yaml").read_text())
    (work / "values-before.yaml").write_text(yaml.safe_dump(values_before(variables), sort_keys=False))
    (work / "values-after.yaml").write_text(yaml.safe_dump(values_after(variables, handed_over), sort_keys=False))
    before = pods(kube, namespace, name)
    upgrade = ("upgrade", "--install", RELEASE, str(work / "chart"), "--namespace", namespace, "--values")
    print(f"$ helm {' '.join(upgrade[:3])} … --values values-after.yaml", flush=True)
    kube.helm(*upgrade, str(work / "values-after.yaml"), "--take-ownership")
    if (after := pods(kube, namespace, name)) != before:
        raise CommandFailedError(
            f"the release with the values of the final manifest restarted pods: {before} -> {after}"
        )
    print("the release with the values of the final manifest changed neither template nor pods")
    print(f"$ helm {' '.join(upgrade[:3])} … --values values-before.yaml", flush=True)
    try:
        kube.helm(*upgrade, str(work / "values-before.yaml"))
    except CommandFailedError as error:
        if REFUSED not in str(error):
            raise
        print(f"refused: {str(error)[str(error).index('StatefulSet ') :][:400]}…")
    else:
        raise CommandFailedError("a release with the values from before the migration was not refused")
    if (after := pods(kube, namespace, name)) != before:
        raise CommandFailedError(f"the refused release restarted pods: {before} -> {after}")
