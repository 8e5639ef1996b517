"""The file system of a controller's pod below one directory, in which a real shell runs the start script."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kraftbridge.builders.controllers import START


@dataclass
class Pod:
    """A controller's file system below one directory."""

    root: Path
    start_script: str = START

    def write(self, path: str, text: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    @property
    def script(self) -> str:
        """The start script, with this directory in place of the pod's root."""
        script = self.start_script
        for folder in ("/tmp/", "/etc/kraftbridge", "/opt/kafka", "/opt/bitnami", "/data/"):
            script = script.replace(folder, f"{self.root}{folder}")
        return script

    def start(self, seconds: float = 20, **env: str) -> dict[str, str]:
        """Run the script; return the environment in which the server would have started."""
        environment = {
            "PATH": os.environ["PATH"],
            "NODE_ID": "3000",
            "CLUSTER_ID": "-abc",
            "EXPORTER": "-javaagent:x",
        } | env
        done = subprocess.run(
            ["bash", "-c", self.script], env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(line.split("=", 1) for line in self.read("/server.env").splitlines() if "=" in line)

    def properties(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.read("/tmp/controller.properties").splitlines() if "=" in line)


def controller_pod(tmp_path: Path, tools: str = "/opt/kafka/bin", ending: str = ".sh") -> Pod:
    """Return a new pod whose Kafka scripts record their arguments. Its claim may have been used before."""
    made = Pod(tmp_path)
    shutil.rmtree(tmp_path / "tmp", ignore_errors=True)
    made.write(f"{tools}/kafka-run-class{ending}", "#!/bin/bash\n")
    made.write(f"{tools}/kafka-storage{ending}", f'#!/bin/bash\nprintf "%s\\n" "$@" > {tmp_path}/format.args\n')
    made.write(f"{tools}/kafka-server-start{ending}", f"#!/bin/bash\nenv > {tmp_path}/server.env\n")
    for script in (tmp_path / tools.lstrip("/")).iterdir():
        script.chmod(0o755)
    made.write("/tmp/x", "")
    made.write("/etc/kraftbridge/controller.properties", "process.roles=controller\nzookeeper.connect=zk:2181/kafka\n")
    made.write("/etc/kraftbridge-format/word", "allowed")
    return made
