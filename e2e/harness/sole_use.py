"""One run at a time on the embedded cluster, which has capacity for one Kafka cluster. The lock removes what earlier runs left."""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.harness.kube import OWNER_LABEL, CommandFailedError, Kube
from e2e.harness.operator_install import OperatorInstall

HOLDER = "KRAFTBRIDGE_E2E_HOLDER"
"""In the environment of whoever runs under another program that has the cluster: its process id."""
RESOURCES = "kafkamigrations.kraftbridge.dev"


@contextmanager
def sole_use(kube: Kube, say: Callable[[str], None] = print, *, remove: bool = True) -> Iterator[None]:
    """Lock the embedded cluster and remove the namespaces that earlier runs left.

    A cluster of ``KUBE_CONTEXT`` may have other users and is left as it is. The embedded cluster is also
    left as it is if a program that holds this lock started the caller. The kernel releases the lock when the process ends.

    Raises
    ------
    CommandFailedError
        Another run holds the lock. The message names it.
    """
    if not kube.embedded or HOLDER in os.environ:
        yield
        return
    state = Path(kube.environment["KUBECONFIG"]).parent
    # Beside the cluster's state, which `cluster down` removes. Opened for appending: the holder's words must be readable by others.
    with state.with_name(f"{state.name}.in-use").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise CommandFailedError(
                f"the embedded cluster is in use by {lock.read().strip() or 'another run'}: "
                "wait until it has ended, or end it"
            ) from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} ({' '.join(sys.argv)})\n")
        lock.flush()
        os.environ[HOLDER] = str(os.getpid())
        try:
            if remove:
                remove_leftovers(kube, say)
            yield
        finally:
            del os.environ[HOLDER]


def remove_leftovers(kube: Kube, say: Callable[[str], None] = print) -> None:
    """Remove every namespace that this harness made, and the operator: their pods would take the room of the next run's."""
    namespaces = [found["metadata"]["name"] for found in kube.list("namespaces", selector=f"{OWNER_LABEL}=true")]
    if not namespaces:
        return
    say(f"removing what an earlier run left: {', '.join(namespaces)}")
    OperatorInstall(kube, "").uninstall()
    for namespace in namespaces:
        remove_with_migrations(kube, namespace)


def remove_with_migrations(kube: Kube, namespace: str) -> None:
    """Delete a namespace of ours with its KafkaMigrations, whose operator may be gone; what their finalizer guards goes as well."""
    if kube.get("crd", RESOURCES) is not None:
        for resource in kube.list(RESOURCES, namespace):
            target = [RESOURCES, resource["metadata"]["name"], "-n", namespace]
            kube.kubectl("patch", *target, "--type", "merge", "-p", '{"metadata":{"finalizers":null}}')
            kube.kubectl("delete", *target, "--ignore-not-found", "--wait=false")
    # A lock that a migration left denies changes of the StatefulSets, not their deletion with the namespace.
    kube.remove_namespace(namespace)
