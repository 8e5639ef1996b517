"""Installs what a migration needs into a cluster: Kubeflow's Spark operator, and our chart."""

import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from e2e.harness.foreign import ForeignCluster
from e2e.harness.kube import CLUSTER, REPOSITORY, CommandFailedError, Kube, NotOursError, run

CHART = REPOSITORY / "helm/kraftbridge"
IMAGES = REPOSITORY / "e2e/images/build"
RELEASE = "kraftbridge"
OPERATOR_SELECTOR = "app.kubernetes.io/name=kraftbridge,app.kubernetes.io/component=operator"
OPERATOR_IMAGE = "localhost/kraftbridge-operator:dev"
UPGRADE_TAGS = ("upgraded", "upgraded-again")
SPARK_CRD = "sparkapplications.sparkoperator.k8s.io"


@dataclass(frozen=True)
class OperatorInstall:
    """Our chart in a namespace of its own, watching one namespace with a migration."""

    kube: Kube
    watched: str
    namespace: str = "kraftbridge"
    ours: bool = True
    """False if the operators were installed by somebody else, who also removes them."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Further values of the chart."""
    chart: str = ""
    """A released chart (``oci://…``), installed with the images that it names; empty for the chart and images of this checkout."""

    def install_spark_operator(self) -> None:
        """Install Kubeflow's Spark operator for the watched namespace.

        Raises
        ------
        CommandFailedError
            If it is missing in a cluster that is not the embedded one: installing it there is its owner's matter.
        """
        if self.kube.embedded:
            run(CLUSTER, "spark-operator", self.watched)
        elif self.kube.get("crd", SPARK_CRD) is None:
            raise CommandFailedError(
                f"context {self.kube.context} has no CRD {SPARK_CRD}: install Kubeflow's Spark operator with "
                f"spark.jobNamespaces={{{self.watched}}}, or run with --runner Job"
            )

    def install(self) -> None:
        """Install or upgrade the chart; the operator's pod is always a new one, since its image's tag is not.

        Raises
        ------
        NotOursError
            If somebody else has a namespace of that name: it may hold an operator that is at work.
        """
        match self.kube.is_ours(self.namespace):
            case None:
                self.kube.create_namespace(self.namespace)
            case False:
                raise NotOursError(
                    f"namespace {self.namespace} exists and was not made by this harness: "
                    "use the operator in it with --installed, or remove it"
                )
        # The letter keeps helm from reading a number, which an annotation must not be.
        run_id = f"r{time.time_ns()}"
        images = {
            "operator.image.repository": "localhost/kraftbridge-operator",
            "operator.image.tag": "dev",
            "verifier.image.repository": "localhost/kraftbridge-verifier",
            "verifier.image.tag": "dev",
        }
        values = ({} if self.chart else images) | {
            "watchNamespaces": f"{{{self.watched}}}",
            "verifier.namespaces": f"{{{self.watched}}}",
            "operator.podAnnotations.run": run_id,
            **self.values,
        }
        settings = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
        try:
            self.kube.helm(
                "upgrade", "--install", RELEASE, *self.chart_arguments(), "--namespace", self.namespace,
                *settings, "--wait", "--timeout", "180s",
            )  # fmt: skip
        except CommandFailedError as error:
            raise CommandFailedError(f"{error}\n{self.kube.troubles(self.namespace)}\n{self.log(40)}") from error

    def upgrade(self) -> str:
        """Upgrade the operator to its image under another tag, without waiting for its pod; return the image's name."""
        repository = OPERATOR_IMAGE.partition(":")[0]
        tag = next(t for t in UPGRADE_TAGS if f"{repository}:{t}" not in self._images())
        run(CLUSTER, "tag-image", OPERATOR_IMAGE, f"{repository}:{tag}")
        self.kube.helm(
            "upgrade", RELEASE, *self.chart_arguments(), "--namespace", self.namespace, "--reuse-values",
            "--set", f"operator.image.tag={tag}",
        )  # fmt: skip
        return f"{repository}:{tag}"

    def _images(self) -> set[str]:
        return {container["image"] for pod in self.pods() for container in pod["spec"]["containers"]}

    def chart_arguments(self) -> list[str]:
        """Return the chart as helm takes it; a registry on this machine has no certificate."""
        if not self.chart:
            return [str(CHART)]
        version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
        plain = ["--plain-http"] if self.chart.startswith(("oci://127.0.0.1:", "oci://localhost:")) else []
        return [self.chart, "--version", version, *plain]

    def uninstall(self, *, as_a_user: bool = False) -> None:
        """Remove the chart; its CRD stays.

        Parameters
        ----------
        as_a_user
            With the hook that lets migrations at rest go and refuses while one moves. A clean-up does without.

        Raises
        ------
        CommandFailedError
            The hook refuses.
        """
        if not self.ours or not self.kube.is_ours(self.namespace):
            return
        hooks = [] if as_a_user else ["--no-hooks"]
        self.kube.helm("uninstall", RELEASE, "--namespace", self.namespace, "--ignore-not-found", "--wait", *hooks)
        self.kube.kubectl("delete", "namespace", self.namespace, "--ignore-not-found")

    def kill(self) -> list[str]:
        """Delete the operator's pods without a grace period, as a crash would; return their names."""
        pods = [pod["metadata"]["name"] for pod in self.pods()]
        if pods:
            self.kube.kubectl(
                "delete", "pod", *pods, "-n", self.namespace, "--grace-period=0", "--force", "--wait=false"
            )
        return pods

    def pods(self) -> list[dict[str, Any]]:
        """Return the operator's pods."""
        return self.kube.list("pods", self.namespace, OPERATOR_SELECTOR)

    def scale(self, replicas: int) -> None:
        """Scale the operator to ``replicas``."""
        self.kube.kubectl("scale", "-n", self.namespace, f"deployment/{RELEASE}", f"--replicas={replicas}")

    def log(self, lines: int = 200) -> str:
        """Return the end of the operator's log."""
        try:
            return self.kube.kubectl(
                "logs", "-n", self.namespace, "-l", OPERATOR_SELECTOR, f"--tail={lines}", "--all-containers"
            )
        except CommandFailedError as error:
            return str(error)


@contextmanager
def migrated(cluster: ForeignCluster, *, unfinished: bool = False) -> Iterator[OperatorInstall]:
    """Run a cluster with an operator in its namespace, and take both away with the migrations.

    Parameters
    ----------
    cluster
        Somebody's cluster, which is not there yet.
    unfinished
        Whether a migration may be left that has not ended: it is given up.
    """
    cluster.up()
    operator = OperatorInstall(cluster.kube, cluster.namespace)
    operator.install()
    yield operator
    # While the operator is there to take its finalizer away.
    migrations = ["kafkamigrations.kraftbridge.dev", "--all", "-n", cluster.namespace]
    if unfinished:
        cluster.kube.kubectl("annotate", *migrations, "--overwrite", "kraftbridge.dev/abandon=true")
    cluster.kube.kubectl("delete", *migrations, "--timeout=60s")
    operator.uninstall()
    cluster.down()
