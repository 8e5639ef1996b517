"""Downloaded materials: Debian's root directory, jars from Maven, the Spark operator from its Go module.

Each is kept in the cache. It is made under a temporary name and then renamed, so that what exists is complete.
"""

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(
    os.environ.get("KRAFTBRIDGE_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraftbridge"
)
STATE = Path(
    os.environ.get("KRAFTBRIDGE_STATE")
    or Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kraftbridge" / "cluster"
)
CLUSTER = Path(__file__).resolve().parent.parent / "cluster" / "cluster"
JMX_AGENT = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"


class BuildError(Exception):
    """Something could not be built; the text says what, and what to do."""


def say(text: str) -> None:
    """Print a message with the time of day."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def run(*command: str | Path, directory: Path | None = None) -> str:
    """Run a command quietly and return its output; if it fails, raise with the end of what it wrote."""
    done = subprocess.run([str(part) for part in command], check=False, text=True, capture_output=True, cwd=directory)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        beginning = " ".join(str(part) for part in command[1:6])
        raise BuildError(f"{command[0]} failed (exit code {done.returncode}): {beginning} ...\n{tail}")
    return done.stdout


def owners_copy(folder: Path, name: str) -> Path:
    """Return a copy of a folder in which the owner may write every file, as in a checkout of its project.

    An image keeps the modes of its context, and entrypoints copy files of the image and then edit them.
    """
    copied = CACHE / "contexts" / name
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(folder, copied, symlinks=True)
    for path in (copied, *copied.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return copied


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of that name; a second caller says so and waits."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another '{name}' command is at work; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(directory: Path, what: str, make: Callable[[Path], None]) -> Path:
    """Return the directory, made by `make` in a temporary place if it is not there yet."""
    if directory.exists():
        return directory
    say(f"fetching {what}")
    begin = time.monotonic()
    unfinished = directory.with_name(directory.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    make(unfinished)
    unfinished.rename(directory)
    say(f"fetched {what} in {time.monotonic() - begin:.0f} s")
    return directory


def debian_root() -> Path:
    """Return a directory with rootfs.tar: Debian 12 with the packages that any Debian base image has."""

    def make(directory: Path) -> None:
        root = directory / "rootfs"
        run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root)
        left_out = [
            "./dev/*",
            "./proc/*",
            "./sys/*",
            "./var/cache/apt/*",
            "./var/lib/apt/lists/*",
            "./var/log/*",
            "./usr/share/doc/*",
            "./usr/share/man/*",
            "./usr/share/locale/*",
        ]
        run(
            "tar",
            "--directory",
            root,
            "--numeric-owner",
            "--sort=name",
            *(f"--exclude={path}" for path in left_out),
            "--create",
            "--file",
            directory / "rootfs.tar",
            ".",
        )
        shutil.rmtree(root)

    return made_once(CACHE / "debian-bookworm", "Debian 12 (debootstrap)", make)


def kafka_jars(pom: Path, release: str = "") -> Path:
    """Return a directory with the jars that the pom names and what they need, of another release if one is named."""
    version = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    others = [f"-Dkafka.version={release}"] if release else []

    def make(directory: Path) -> None:
        run(
            "mvn",
            "-q",
            "-B",
            "-f",
            pom,
            *others,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={directory}",
        )

    name = f"kafka-jars-{version}{release and '-'}{release}"
    return made_once(CACHE / name, "Kafka's jars from Maven Central", make)


def jmx_agent() -> Path:
    """Return a directory with jmx_prometheus_javaagent.jar."""

    def make(directory: Path) -> None:
        run(
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={JMX_AGENT}",
            "-Dmdep.stripVersion",
            f"-DoutputDirectory={directory}",
            directory=directory,
        )

    return made_once(CACHE / f"jmx-agent-{JMX_AGENT.rsplit(':', 1)[1]}", JMX_AGENT, make)


def cluster_program(name: str) -> Path:
    """Return a directory with one of the programs that the cluster is built of, and nothing else."""
    source = CACHE / "bin" / name
    subprocess.run([CLUSTER, "build"], check=True)
    directory = CACHE / f"{name}-program"
    program = directory / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        directory.mkdir(exist_ok=True)
        shutil.copy2(source, directory / f"{name}.new")
        (directory / f"{name}.new").rename(program)
    return directory
