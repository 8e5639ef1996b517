"""Plants differences into copies of the real data set: into the ZooKeeper dump or into the voters' logs."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.unit.metadata.record_writer import batch

DATA = Path(__file__).resolve().parents[1] / "data" / "metadata"
CHROOT = "/kafka"
VOTERS = ("c3000", "c3001", "c3002")
LOG_END = 1684
ENCODER_SECRET = "labsecret"


class Dump:
    """A dump that is changed in memory."""

    def __init__(self, path: Path = DATA / "dualwrite" / "zk.jsonl.gz") -> None:
        with gzip.open(path, "rt") as lines:
            self.znodes: dict[str, dict[str, Any]] = {}
            for line in lines:
                row = json.loads(line)
                self.znodes[row["path"].removeprefix(CHROOT) or "/"] = row
        self.repeated: list[dict[str, Any]] = []

    def data(self, path: str) -> Any:
        return json.loads(self.znodes[path]["data"])

    def put(self, path: str, data: Any) -> None:
        text = data if data is None or isinstance(data, str) else json.dumps(data)
        row = {"path": CHROOT + path, "enc": "utf8", "version": 0, "czxid": 1, "mzxid": 1, "ephemeralOwner": 0}
        self.znodes[path] = {**row, "numChildren": 0, **self.znodes.get(path, {}), "data": text}

    def change(self, path: str, function: Callable[[Any], Any]) -> None:
        body = self.data(path)
        result = function(body)
        self.put(path, body if result is None else result)

    def remove(self, path: str) -> None:
        """Remove a znode as ZooKeeper does: its parent counts one child less."""
        if path in self.znodes:
            self.znodes[path.rpartition("/")[0] or "/"]["numChildren"] -= 1
        for each in [each for each in self.znodes if each == path or each.startswith(path + "/")]:
            del self.znodes[each]

    def mirrors(self, offset: int) -> None:
        self.change("/migration", lambda body: body.update(kraft_metadata_offset=offset))

    def write(self, path: Path) -> Path:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in [*self.znodes.values(), *self.repeated])
        return path


class Cluster:
    """Copies of the voters' logs and the dump, in one folder."""

    def __init__(self, folder: Path, voters: Iterable[str] = VOTERS) -> None:
        self.folder = folder
        self.voters = list(voters)
        self.dump = Dump()
        for voter in self.voters:
            shutil.copytree(DATA / "dualwrite" / voter, folder / voter)

    def log(self, voter: str) -> Path:
        return next((self.folder / voter / "__cluster_metadata-0").glob("*.log"))

    def append(self, records: list[bytes], voters: Iterable[str] | None = None, *, mirrored: bool = True) -> None:
        """Append one batch; `mirrored`: ZooKeeper claims to hold it."""
        for voter in voters or self.voters:
            with self.log(voter).open("ab") as file:
                file.write(batch(records, LOG_END))
        if mirrored:
            self.dump.mirrors(LOG_END + len(records) - 1)

    def arguments(self) -> tuple[Path, list[tuple[str, Path]]]:
        path = self.dump.write(self.folder / "zk.jsonl")
        return path, [(voter, self.folder / voter) for voter in self.voters]
