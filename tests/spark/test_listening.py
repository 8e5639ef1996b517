"""What a verification's Spark processes listen on, started exactly as its pods start them, and whom they answer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest
from tests.support.every_pod import run_facts
from tests.support.observations import spec_document
from tests.support.strangers import KUBERNETES, QUIET, STRANGER, TALK

from kraftbridge.builders import verification
from kraftbridge.models.report import Profile
from kraftbridge.models.spec import MigrationSpec, Runner

SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin/spark-submit")
SECONDS: Final = 240

OPEN: Final = """
import json, os, sys
from pathlib import Path
from kraftbridge.verification import command_line
from kraftbridge.verification.run import open_session

def listening(pids):
    inodes = set()
    for pid in pids:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(each)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                yield words[1].rpartition(":")[0]

def tree(pid):
    found = [pid]
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found += tree(int(each.name))
    return found

options = command_line._parser().parse_args(sys.argv[1:])
session = open_session(local=True, master=options.master)
session.sparkContext.parallelize([1, 2], 2).map(str).collect()
top = os.getppid() if os.environ["DRIVER"] == "parent" else os.getpid()
told = {"master": session.sparkContext.master, "listening": sorted(set(listening(tree(top))))}
print("TOLD " + json.dumps(told), flush=True)
session.stop()
"""

LOOPBACK: Final = frozenset({"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"})
"""127.0.0.1 as in /proc/net/tcp, mapped into IPv6 as in tcp6, and ::1."""


def own_address() -> str:
    """Return an address of this machine that is not loopback; a datagram socket that is connected sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def spec(executors: int) -> MigrationSpec:
    document = spec_document()
    document["verification"] = {**document.get("verification", {}), "executors": executors}
    return MigrationSpec.model_validate(document)


def job(profile: Profile) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a Job's container."""
    built = verification.application(spec(0), run_facts(profile=profile), Runner.JOB)
    container = built["spec"]["template"]["spec"]["containers"][0]
    return container["command"], {e["name"]: e["value"] for e in container.get("env", ())}


def driver(executors: int) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a SparkApplication's driver, as Spark's backend and the image's entry point make them."""
    built = verification.application(spec(executors), run_facts(), Runner.SPARK_APPLICATION)["spec"]
    conf = [f"--conf={k}={v}" for k, v in {**built["sparkConf"], "spark.driver.bindAddress": own_address()}.items()]
    command = ["/opt/spark/bin/spark-submit", "--master", "k8s://https://127.0.0.1:1", "--deploy-mode", "client"]
    return [*command, *conf, verification.MAIN, *built["arguments"]], {"SPARK_APPLICATION_ID": "spark-1"}


PODS: Final = {
    "Job": job(Profile.DUAL_WRITE),
    "watch of the copy": job(Profile.COPY),
    "driver without executors": driver(0),
}


@pytest.mark.parametrize("pod", PODS)
def test_a_driver_without_executors_listens_on_loopback_only(pod: str, tmp_path: Path) -> None:
    command, environment = PODS[pod]
    script = tmp_path / "open.py"
    script.write_text(OPEN)
    replaced = {"/opt/spark/bin/spark-submit": SPARK_SUBMIT, verification.MAIN: str(script), "python": sys.executable}
    parent = command[0].endswith("spark-submit")
    done = subprocess.run(
        [replaced.get(word, word) for word in command],
        env={
            **os.environ,
            **environment,
            "DRIVER": "parent" if parent else "self",
            "PYSPARK_PYTHON": sys.executable,
            # What a pod's name resolves to: not loopback.
            "SPARK_LOCAL_IP": own_address(),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    told = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert told, done.stderr[-3000:]
    assert told[0]["master"] == "local[2]"
    assert told[0]["listening"], "a driver always listens"
    assert set(told[0]["listening"]) <= LOOPBACK


VICTIM: Final = """
import sys
from kraftbridge.verification.run import open_session
session = open_session(local=True)
print("LISTENS", session.sparkContext.getConf().get("spark.driver.port"), flush=True)
sys.stdin.read()
session.stop()
"""

OUTSIDE: Final = {"KUBECONFIG": "/nonexistent"}


def secured(folder: Path) -> list[str]:
    """Return the settings that a driver with executors gets; its secret is in the folder."""
    facts = run_facts()
    built = verification.application(spec(2), facts, Runner.SPARK_APPLICATION)["spec"]
    (folder / "secret").write_text(verification.spark_secret(facts, "a" * 64)["stringData"]["secret"])
    file = built["sparkConf"]["spark.authenticate.secret.file"]
    mounts = [m["mountPath"] for m in built["driver"]["template"]["spec"]["containers"][0]["volumeMounts"]]
    (mounted,) = (each for each in mounts if file.startswith(f"{each}/"))
    return [f"{k}={v.replace(mounted, str(folder))}" for k, v in built["sparkConf"].items()]


@contextmanager
def victim(folder: Path, settings: list[str]) -> Iterator[str]:
    """Run a driver that keeps a block and listens on this machine's own address, as a driver with executors does; yield its port."""
    (folder / "victim.py").write_text(VICTIM)
    address = [f"spark.driver.bindAddress={own_address()}", f"spark.driver.host={own_address()}"]
    conf = [f"--conf={each}" for each in (*settings, *QUIET, *address)]
    command = [SPARK_SUBMIT, "--master", KUBERNETES, "--deploy-mode", "client", *conf, str(folder / "victim.py")]
    environment = {**os.environ, **OUTSIDE, "SPARK_APPLICATION_ID": "spark-1", "PYSPARK_PYTHON": sys.executable}
    with (folder / "victim.log").open("w+") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            found: list[str] = []
            until = time.monotonic() + SECONDS
            while not found and process.poll() is None and time.monotonic() < until:
                time.sleep(0.5)
                lines = (folder / "victim.log").read_text().splitlines()
                found = [line.split()[1] for line in lines if line.startswith("LISTENS ")]
            yield found[0] if found else ""
            print((folder / "victim.log").read_text()[-3000:])
        finally:
            process.kill()
            process.wait(60)


def stranger(folder: Path, port: str, settings: list[str], master: str = KUBERNETES) -> str:
    """Return what a process that knows host and port gets from a driver."""
    (folder / "stranger.py").write_text(STRANGER)
    command = [sys.executable, str(folder / "stranger.py"), f"{own_address()}:{port}", master, *settings, *QUIET]
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"} | OUTSIDE
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    print(done.stdout, done.stderr[-3000:])
    assert "ASKED" in done.stdout, "this test's own stranger asks"
    return done.stdout


def talked(port: str) -> dict[str, str]:
    """Return what is answered to words of several protocols."""
    command = [sys.executable, "-c", TALK, own_address(), port]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    return dict(json.loads(done.stdout.partition("TOLD ")[2]))


def test_a_driver_with_executors_answers_only_who_has_the_secret_in_the_file(tmp_path: Path) -> None:
    settings = secured(tmp_path)
    assert "a" * 64 not in " ".join(settings)
    with victim(tmp_path, settings) as port:
        assert port
        assert set(talked(port).values()) == {""}, "nothing is answered to any word"
        assert "ANSWERED" not in stranger(tmp_path, port, [], "local[1]")
        guessed = tmp_path / "guess"
        guessed.write_text("b" * 64)
        wrong = [each.replace(str(tmp_path / "secret"), str(guessed)) for each in settings]
        assert "ANSWERED" not in stranger(tmp_path, port, wrong)
        answer = stranger(tmp_path, port, settings)
    for what in ("block managers", "scheduler"):
        assert f"ANSWERED {what}" in answer, "this test's own stranger knows how to ask"


def test_a_driver_that_would_answer_everybody_does_not_start(tmp_path: Path) -> None:
    with victim(tmp_path, []) as port:
        assert not port
        assert "without authentication" in (tmp_path / "victim.log").read_text()
