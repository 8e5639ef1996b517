"""Our decoders against Kafka's own: random records of every type and version, written by Kafka in all compressions."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import zipfile
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_processes import kafka_libraries
from tests.unit.metadata.test_record_blocks import plain_rows

from kraftbridge.metadata.entities import Secrets
from kraftbridge.metadata.log.batches import BatchScan
from kraftbridge.metadata.log.blocks import record_block
from kraftbridge.metadata.log.definitions import record_definitions
from kraftbridge.metadata.log.replay import decoded_columns, decoded_record

SOURCE = Path(__file__).with_name("java") / "RandomRecords.java"
SEED = int(os.environ.get("KRAFTBRIDGE_SEED", "20261120"))
EACH = 60
NEWEST = "4.4.0"
"""The release that has every record of the ones before."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fail, not skip, where Java or Maven are missing: this is what says that the decoders are right."""
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        raise RuntimeError("the differential test needs a JDK (Debian: openjdk-17-jdk-headless)")
    directory = tmp_path_factory.mktemp("records")
    command = [java, "-cp", f"{kafka_libraries(NEWEST)}/*", str(SOURCE), str(directory), str(SEED), str(EACH)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def as_json(value: Any, field_type: str) -> Any:
    """Return a decoded value as Kafka's JSON converter writes it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return (
            base64.urlsafe_b64encode(value).rstrip(b"=").decode()
            if field_type == "uuid"
            else base64.b64encode(value).decode()
        )
    if isinstance(value, tuple):
        return [as_json(item, field_type.removeprefix("[]")) for item in value]
    return value


def plain(fields: dict[str, Any], definitions: Any) -> dict[str, Any]:
    result = {}
    for field in definitions:
        if field.name not in fields:
            continue
        value = fields[field.name]
        if field.fields:
            result[field.name] = None if value is None else [plain(item, field.fields) for item in value]
        else:
            result[field.name] = as_json(value, field.type)
    return result


def test_every_type_and_version_is_covered(written):
    lines = (written / "expected.jsonl").read_text().splitlines()
    counts = Counter((row["name"], row["version"]) for row in map(json.loads, lines))
    for definition in record_definitions().values():
        for version in range(definition.versions.lowest, definition.versions.highest + 1):
            least = 1 if not definition.fields else EACH // 2
            assert counts[definition.name, version] >= least, (definition.name, version)
    known = {
        (d.name, v) for d in record_definitions().values() for v in range(d.versions.lowest, d.versions.highest + 1)
    }
    assert set(counts) == known


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_decodes_like_kafka(written, compression):
    scan = BatchScan((written / f"{compression}.log").read_bytes(), compression)
    expected = iter((written / "expected.jsonl").read_text().splitlines())
    definitions = {definition.name: definition for definition in record_definitions().values()}
    compared = 0
    for batch in scan:
        assert batch.epoch == 7
        for offset, key, value in batch.records():
            row = json.loads(next(expected))
            assert key is None
            assert offset == row["offset"]
            name, fields = decoded_record(value, offset)
            assert name == row["name"]
            ours, theirs = plain(fields, definitions[name].fields), row["fields"]
            for field in definitions[name].fields:
                if field.name in ours and field.name not in theirs:
                    # Kafka's converter leaves out tagged fields that have their default.
                    assert row["version"] in field.tagged, (name, field.name)
                    assert ours.pop(field.name) in ([], None, "", 0, False, -1, -2, "AAAAAAAAAAAAAAAAAAAAAA"), (
                        name,
                        field.name,
                    )
            assert ours == theirs, (name, row["version"])
            compared += 1
    assert next(expected, None) is None
    assert compared > 30 * EACH
    assert scan.torn_bytes == 0


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_columns_hold_what_records_hold(written, compression):
    """Kafka's own bytes again: what is read as columns is what is read one by one, of every version."""
    batches = list(BatchScan((written / f"{compression}.log").read_bytes(), compression))
    block = record_block(batches, 0, None)
    values = {offset: value for each in batches for offset, _, value in each.records()}
    assert [(int(offset), block.value(index)) for index, offset in enumerate(block.offsets)] == list(values.items())
    compared = Counter()
    for (name, version), (indexes, columns) in decoded_columns(block).items():
        rows = plain_rows(columns)
        for index, row in zip(indexes.tolist(), rows, strict=True):
            offset = int(block.offsets[index])
            assert (name, row) == decoded_record(values[offset], offset)
            compared[name, version] += 1
    expected = {("PartitionRecord", v): EACH for v in range(3)} | {("PartitionChangeRecord", v): EACH for v in range(3)}
    assert compared == expected


def test_definitions_are_those_of_the_jar():
    jar = next(kafka_libraries("3.9.2").glob("kafka-metadata-3.9.2.jar"))
    of_kafka4 = {
        f"{name}Record.json"
        for name in ("BrokerRegistrationChange", "ClearElr", "RegisterBroker", "UnregisterController")
    }
    ours = {
        entry.name: entry.read_bytes()
        for entry in resources.files("kraftbridge.metadata.log").joinpath("schemas").iterdir()
    }
    with zipfile.ZipFile(jar) as archive:
        theirs = {
            Path(name).name: archive.read(name)
            for name in archive.namelist()
            if name.startswith("common/metadata/") and name.endswith(".json")
        }
        assert ours.pop("NOTICE") == archive.read("NOTICE")
    with zipfile.ZipFile(next(kafka_libraries(NEWEST).glob(f"kafka-metadata-{NEWEST}.jar"))) as archive:
        newest = {
            Path(name).name: archive.read(name)
            for name in archive.namelist()
            if name.startswith("common/metadata/") and name.endswith(".json")
        }
    ours.pop("README.md")
    assert ours == theirs | {name: newest[name] for name in of_kafka4}
    unlike = {name for name in newest if newest[name] != theirs.get(name)}
    # A comment in the definition of ZkMigrationRecord is all that is another one.
    assert unlike == of_kafka4 | {"ZkMigrationRecord.json"}


def test_secrets_are_keyed():
    assert Secrets(b"1").hashed("x") != Secrets(b"2").hashed("x")
