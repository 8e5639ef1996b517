"""The command line as the operator and people use it: exit codes, files, the armed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest
from tests.spark.planting import CHROOT, DATA, VOTERS, Cluster, Dump
from tests.support.zookeeper_ensemble import zookeeper_ensemble
from tests.unit.verification.test_configmap import ApiServer

from kraftbridge.models.report import (
    GO_KEY,
    READY_KEY,
    REPORT_KEY,
    REQUEST_KEY,
    VERDICT_KEY,
    Go,
    Profile,
    Verdict,
    VerdictSummary,
    VerificationReport,
    VerificationRequest,
    VoterAccess,
    digest_of,
)
from kraftbridge.verification.command_line import main


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def offline(spark, cluster, *more):
    dump, voters = cluster.arguments()
    arguments = ["offline", "--zookeeper", str(dump), "--chroot", "/kafka", "--json", str(cluster.folder / "out.json")]
    for name, folder in voters:
        arguments += ["--voter", f"{name}={folder}"]
    code = main([*arguments, "--html", str(cluster.folder / "out.html"), *more])
    path = cluster.folder / "out.json"
    return code, json.loads(path.read_text()) if path.exists() else None


def test_consistent_is_0(spark, cluster):
    code, report = offline(spark, cluster)
    assert code == 0
    assert report["verdict"] == "Consistent"
    assert report["differences"] == []
    assert report["counts"]["partition"] == {"zookeeper": 335, "log": 335, "compared": 335, "differing": 0}
    assert "<h1>Consistent</h1>" in (cluster.folder / "out.html").read_text()


def test_inconsistent_is_1(spark, cluster):
    cluster.dump.remove("/kafka-acl/Topic/cfg-10")
    code, report = offline(spark, cluster)
    assert code == 1
    (difference,) = report["differences"]
    assert difference["kind"] == "acl"
    assert "cfg-10" in difference["key"]
    assert difference["absentIn"] == ["zookeeper"]


def test_inconclusive_is_2(spark, cluster):
    cluster.dump.put("/config/topics/cfg-00", "nonsense")
    code, report = offline(spark, cluster)
    assert code == 2
    assert report["verdict"] == "Inconclusive"
    assert "/config/topics/cfg-00" in report["reason"]


@pytest.mark.integration
@pytest.mark.parametrize("more", [False, True], ids=["plain", "redacted"])
def test_a_dump_of_a_live_ensemble_is_consistent_with_the_logs(spark, cluster, tmp_path, more):
    key = ("--key-file", str(tmp_path / "key")) if more else ()
    with zookeeper_ensemble(servers=3) as ensemble:
        ensemble.load(DATA / "dualwrite" / "zk.jsonl.gz")
        path = tmp_path / "live.jsonl.gz"
        assert (
            main(
                ["dump", "--connect", f"{ensemble.hosts}{CHROOT}", "--output", str(path), *key, *(("--redact",) * more)]
            )
            == 0
        )
    cluster.dump = Dump(path)
    code, report = offline(spark, cluster, *key)
    assert (code, report["verdict"], report["differences"]) == (0, "Consistent", [])
    assert report["counts"]["partition"]["compared"] == 335
    cluster.dump.remove("/brokers/topics/cfg-03/partitions/1/state")
    code, report = offline(spark, cluster, *key)
    assert (code, [difference["key"] for difference in report["differences"]]) == (1, ["cfg-03-1"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--zookeeper", "/nowhere.jsonl", "--voter", "a=/tmp"],
        ["--voter", "a=/nowhere"],
        ["--zookeeper", "{dump}", "--voter", "a=/nowhere"],
        ["--zookeeper", "{dump}"],
        ["--profile", "replicas", "--voter", "a=/tmp"],
    ],
)
def test_bad_input_is_2_and_says_what(cluster, caplog, arguments):
    dump, _ = cluster.arguments()
    assert main(["offline", *(argument.replace("{dump}", str(dump)) for argument in arguments)]) == 2
    assert any(word in caplog.text for word in ("nowhere", "needs"))


def test_profiles_by_hand(spark, cluster):
    assert offline(spark, cluster, "--profile", "replicas")[0] == 0
    code, report = offline(spark, cluster, "--profile", "zookeeper")
    assert code == 1
    assert {finding["code"] for finding in report["findings"]} >= {"MigrationZnodeStale"}


def test_help_in_a_process_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "kraftbridge.verification", "--help"], check=True, capture_output=True, text=True
    )
    for command in ("run", "offline", "dump"):
        assert command in done.stdout


@pytest.fixture
def api():
    server = ApiServer()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def armed(api, cluster, **options) -> list[str]:
    request = VerificationRequest(
        run_id="run-7",
        generation=3,
        phase="Completed",
        profile=Profile.REPLICAS,
        voters=[VoterAccess(id=int(name[1:]), log_url=f"file://{cluster.folder}/{name}") for name in VOTERS],
        **options,
    )
    api.data[REQUEST_KEY] = request.to_json()
    (cluster.folder / "token").write_text("token")
    url = f"http://127.0.0.1:{api.server_address[1]}"
    return ["run", "--configmap", "ns/run-1", "--api-server", url, "--service-account", str(cluster.folder)]


def test_an_armed_run_waits_for_its_go_and_answers(spark, api, cluster, monkeypatch):
    import base64
    import gzip

    went = []

    def operator() -> None:
        while READY_KEY not in api.data:
            time.sleep(0.05)
        time.sleep(1)
        assert VERDICT_KEY not in api.data, "nothing is read before the go"
        # What the operator wants judged is what is there at its go.
        cluster.append([b"\x01\x14\x00\x00"], mirrored=False)
        went.append(time.monotonic())
        api.data[GO_KEY] = Go(run_id="run-7", at=datetime.now(UTC)).to_json()

    thread = threading.Thread(target=operator)
    thread.start()
    assert main(armed(api, cluster)) == 0
    seconds = time.monotonic() - went[0]
    thread.join()
    summary = VerdictSummary.model_validate_json(api.data[VERDICT_KEY])
    assert (summary.verdict, summary.run_id, summary.phase, summary.generation) == (
        Verdict.CONSISTENT,
        "run-7",
        "Completed",
        3,
    )
    assert summary.compared_offset == 1684
    report = VerificationReport.model_validate_json(gzip.decompress(base64.b64decode(api.data[REPORT_KEY])))
    assert report.reason == summary.reason
    print(f"answered {seconds:.1f} s after its go")


def test_an_armed_run_that_nobody_wants_ends(spark, api, cluster):
    assert main(armed(api, cluster, armed_deadline_seconds=1.0)) == 3
    assert VERDICT_KEY not in api.data
    api.data = None
    assert main([*["run", "--configmap", "ns/run-1", "--api-server"], f"http://127.0.0.1:{api.server_address[1]}"]) in {
        2,
        3,
    }


def test_a_request_that_somebody_has_changed_is_2_and_nothing_is_read(spark, api, cluster):
    """Who may write ConfigMaps would choose where the run logs in with the mounted password."""
    arguments = armed(api, cluster)
    digest = digest_of(api.data[REQUEST_KEY])
    api.data[REQUEST_KEY] = api.data[REQUEST_KEY].replace("file://", "https://elsewhere.example.com/")
    assert main([*arguments, "--request-digest", digest]) == 2
    assert READY_KEY not in api.data
    assert VERDICT_KEY not in api.data


def test_a_bad_request_is_2(spark, api, cluster, tmp_path):
    arguments = armed(api, cluster)
    api.data[REQUEST_KEY] = "{}"
    assert main(arguments) == 2
    (tmp_path / "request.json").write_text("{}")
    assert main(["run", "--request", str(tmp_path / "request.json")]) == 2
    assert main(["run", "--request", str(tmp_path / "nowhere.json")]) == 2


def test_a_request_in_a_file_runs_at_once(spark, api, cluster, tmp_path):
    armed(api, cluster)
    (tmp_path / "request.json").write_text(api.data[REQUEST_KEY])
    assert main(["run", "--request", str(tmp_path / "request.json"), "--json", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "Consistent"


def test_a_local_master_takes_the_place_of_the_cluster_that_submitted_the_driver():
    """As in the pod of a SparkApplication with `executors: 0`: the properties name the cluster, and the application has the last word."""
    environment = os.environ | {
        "SPARK_APPLICATION_ID": "spark-1",
        "PYSPARK_SUBMIT_ARGS": "--master k8s://https://127.0.0.1:1 --conf spark.driver.host=no-such-host.invalid pyspark-shell",
    }
    script = (
        "from kraftbridge.verification.run import open_session\n"
        "session = open_session(local=True, master='local[1]')\n"
        "print(session.sparkContext.master, session.sparkContext.parallelize([3, 4], 2).sum())\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.stdout.split() == ["local[1]", "7"], done.stderr[-3000:]
