"""One secret in each source of a verification, and none in what leaves it: logs, report, page, and Spark's event log.

The rest of what leaves is searched in `tests/unit/plugin/test_bundle.py` (archive, logs, objects, events),
`tests/unit/metadata/test_zookeeper_decoding.py` (dumps) and `tests/unit/rehearsal/test_tree.py` (rehearsals).
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

from tests.spark.planting import DATA, VOTERS, Dump

PLANTED = {
    "dynamic setting of a broker that Kafka does not define": "br0ker-vendor-api-key",
    "dynamic password of a broker": "br0ker-jaas-password",
    "setting of a topic that Kafka does not define": "t0pic-vendor-access-key",
    "SCRAM credential": base64.b64encode(b"scr4m-salt-of-a-user").decode(),
    "field of a delegation token": "t0ken-hmac-value",
    "znode of another program": "0ther-program-passwd",
    "setting of a client metrics subscription that Kafka does not define": "cl1ent-metrics-token",
}


def planted() -> Dump:
    values = list(PLANTED.values())
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{values[1]}";'
    dump = Dump()
    dump.change("/config/brokers/<default>", lambda body: body["config"].update({"vendor.api.key": values[0]}))
    dump.put("/config/brokers/77", {"version": 1, "config": {"sasl.jaas.config": jaas}})
    dump.put("/config/topics/cfg-00", {"version": 1, "config": {"vendor.access.key": values[2]}})
    scram = f"salt={values[3]},stored_key={values[3]},server_key={values[3]},iterations=4096"
    dump.put("/config/users/planted", {"version": 1, "config": {"SCRAM-SHA-256": scram}})
    dump.put("/config/users/broken", {"version": 1, "config": {"SCRAM-SHA-256": f"password={values[3]}"}})
    dump.put("/delegation_token/tokens/planted", {"version": 3, "tokenId": "planted", "hmac": values[4]})
    metrics = {"interval.ms": "1000", "vendor.token": values[6]}
    dump.put("/config/client-metrics/planted", {"version": 1, "config": metrics})
    dump.put("/kafka-manager/configs/planted", {"passwd": values[5]})
    return dump


def test_no_planted_secret_leaves_a_verification(tmp_path: Path) -> None:
    dump = planted().write(tmp_path / "zk.jsonl")
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n"
        "spark.eventLog.compress false\nspark.eventLog.rolling.enabled false\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kraftbridge.verification", "offline", "--zookeeper", str(dump), "--chroot", "/kafka"),
            *(part for name in VOTERS for part in ("--voter", f"{name}={DATA / 'dualwrite' / name}")),
            *("--json", str(tmp_path / "report.json"), "--html", str(tmp_path / "report.html")),
        ],
        env=os.environ | {"SPARK_CONF_DIR": str(tmp_path / "conf")},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    left = {path.name: path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()}
    del left["zk.jsonl"]
    left |= {"stdout": done.stdout, "stderr": done.stderr}
    report = left["report.json"]
    assert done.returncode in {1, 2}, done.stderr
    assert "vendor.api.key" in report
    assert "vendor.access.key" in report
    assert "planted" in report
    (log,) = (left[path.name] for path in events.iterdir() if not path.name.startswith("."))
    assert "SparkListenerJobStart" in log
    found = [(what, name) for what, value in PLANTED.items() for name, text in left.items() if value in text]
    assert found == []
    assert "Traceback" not in done.stderr
    # Who has the key of a run's hashes can try passwords.
    assert '"salt' not in log
    assert "salt\\" not in log
