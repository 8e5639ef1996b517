"""What the pages, examples and CONTRIBUTING claim about the code is true."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from mkdocs.config import load_config
from tests.support.observations import open_gate

from kraftbridge.builders.names import controller_host
from kraftbridge.copies.dry_start import likely_channels
from kraftbridge.kafka.client import Security
from kraftbridge.models import crd
from kraftbridge.models.catalogue import ACCEPTABLE
from kraftbridge.models.conditions import ConditionType, Reason
from kraftbridge.models.decision import Action
from kraftbridge.models.entities import EntityKind
from kraftbridge.models.phase import Phase
from kraftbridge.models.runs import RUNS, RunKind
from kraftbridge.models.spec import ConfigStyle, MigrationSpec, OnDeletion
from kraftbridge.models.status import controllers_name
from kraftbridge.outside.properties import parse_properties
from kraftbridge.pods.credentials import listener_problems
from kraftbridge.services import metrics

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator/kraftbridge"
DOCS = ROOT / "docs"
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/migration.yaml"))
SCHEMA = crd.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


# ------------------------------------------------------------------------------------------------ examples and YAML in pages


def unknown_fields(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the fields that the API server would drop, and values that are none of an enumeration."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or path == ".metadata":
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value}"
    if isinstance(value, dict):
        for name, item in value.items():
            field = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if field is None:
                yield f"{path}.{name}"
            else:
                yield from unknown_fields(item, field, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from unknown_fields(item, schema["items"], f"{path}[]")


def check_migration(resource: dict[str, Any]) -> None:
    assert list(unknown_fields(resource, SCHEMA, "")) == []
    spec = MigrationSpec.model_validate(resource["spec"])
    for accepted in spec.preflight.accepted:
        assert accepted.code in ACCEPTABLE


def test_there_is_an_example_of_each_layout() -> None:
    assert {path.name for path in EXAMPLES} >= {"env", "bitnami", "properties", "several-statefulsets", "secured"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_complete(example: Path) -> None:
    migration = yaml.safe_load((example / "migration.yaml").read_text())
    check_migration(migration)
    names = yaml.safe_load((example / "kustomization.yaml").read_text())["resources"]
    documents = [
        document
        for name in names
        if name.endswith(".yaml")
        for document in yaml.safe_load_all((example / name).read_text())
    ]
    by_kind = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    generated = [
        g for k in example.rglob("kustomization.yaml") for g in yaml.safe_load(k.read_text()).get("secretGenerator", ())
    ]
    by_kind |= {("Secret", g["name"]): g for g in generated}
    spec = MigrationSpec.model_validate(migration["spec"])
    secrets = (spec.controllers.listener.secret_name, spec.brokers.client_config_secret, spec.zookeeper.secret_name)
    for secret in filter(None, secrets):
        assert ("Secret", secret) in by_kind
    for ref in spec.brokers.stateful_sets:
        pod = by_kind["StatefulSet", ref.name]["spec"]["template"]["spec"]
        container = next(c for c in pod["containers"] if c["name"] == spec.brokers.container)
        variables = {v["name"] for v in container.get("env", [])}
        brokers = spec.brokers
        if brokers.config_style is ConfigStyle.AUTO:
            brokers = likely_channels(brokers, [(pod, {})])[0]
        if brokers.properties is None:
            assert f"{brokers.env_prefix}ZOOKEEPER_CONNECT" in variables
        else:
            volume = next(v for v in pod["volumes"] if v["name"] == brokers.properties.volume)
            text = by_kind["ConfigMap", volume["configMap"]["name"]]["data"][brokers.properties.key]
            assert "zookeeper.connect=" in text


CP_KAFKA_DATA = "/var/lib/kafka/data"
"""What cp-kafka's entrypoint asks to be writable before it starts Kafka (``/etc/confluent/docker/ensure``)."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_no_volume_hides_the_directory_that_cp_kafkas_entrypoint_asks_for(example: Path) -> None:
    for document in yaml.safe_load_all((example / "kafka.yaml").read_text()):
        if document["kind"] != "StatefulSet":
            continue
        for container in document["spec"]["template"]["spec"]["containers"]:
            if "cp-kafka" not in container["image"] or "command" in container:
                continue
            mounts = [m["mountPath"] for m in container["volumeMounts"]]
            assert not [m for m in mounts if CP_KAFKA_DATA.startswith(f"{m}/")]
            (log_dirs,) = {e["value"] for e in container["env"] if e["name"] == "KAFKA_LOG_DIRS"}
            # Kafka does not start beside the directory lost+found of a volume.
            assert log_dirs.rpartition("/")[0] in mounts


def test_the_secured_example_makes_what_its_migration_needs(tmp_path: Path) -> None:
    example = tmp_path / "secured"
    shutil.copytree(ROOT / "examples/secured", example, ignore=shutil.ignore_patterns("pki"))
    migration = yaml.safe_load((example / "migration.yaml").read_text())
    spec, namespace = MigrationSpec.model_validate(migration["spec"]), migration["metadata"]["namespace"]
    controllers = controllers_name(migration["metadata"]["name"], "1a2b3c4d-0000", 1)
    for argument in ((), (controllers,)):
        subprocess.run([example / "prepare.sh", *argument], check=True, timeout=300)
    secrets = {}
    for kustomization in example.rglob("kustomization.yaml"):
        for secret in yaml.safe_load(kustomization.read_text()).get("secretGenerator", ()):
            files = [(f.rpartition("=")[2], f.partition("=")[0].rpartition("/")[2]) for f in secret["files"]]
            secrets[secret["name"]] = {key: (kustomization.parent / path).read_text() for path, key in files}
    listener = secrets[spec.controllers.listener.secret_name or ""]
    hosts = [controller_host(controllers, namespace, i, "cluster.local") for i in spec.controllers.node_ids]
    protocol = spec.controllers.listener.security_protocol
    assert listener_problems(listener, protocol, hosts, datetime.now(UTC)) == ()
    clients = secrets[spec.brokers.client_config_secret or ""]
    for name, mechanism in (("client.properties", "SCRAM-SHA-512"), ("controller.properties", "PLAIN")):
        security = Security.from_properties(parse_properties(clients[name]))
        assert (security.tls is not None, security.mechanism) == (True, mechanism)
    brokers = secrets["kafka-tls"]
    own = {"tls.crt": brokers["kafka.pem"], "tls.key": brokers["kafka.pem"], "ca.crt": brokers["ca.crt"]}
    addresses = [server.rpartition(":")[0] for server in spec.brokers.bootstrap_servers.split(",")]
    advertised = [f"{address}.{namespace}.svc.cluster.local" for address in addresses]
    assert listener_problems(own, "SSL", [*addresses, *advertised], datetime.now(UTC)) == ()
    given = parse_properties(listener["listener.properties"])
    (login,) = {v for k, v in given.items() if k == "listener.name.internal.scram-sha-512.sasl.jaas.config"}
    assert login == secrets["kafka-logins"]["internal"].strip()
    assert secrets["kafka-logins"]["controller"].strip() in clients["controller.properties"]


def yaml_blocks(page: Path) -> Iterator[Any]:
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        yield from yaml.safe_load_all(block)


PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_yaml_of_a_page_is_what_the_api_server_takes(page: Path) -> None:
    for document in yaml_blocks(page):
        if not isinstance(document, dict):
            continue
        if document.get("kind") == crd.KIND:
            check_migration(document)
        elif set(document) == {"spec"}:
            assert list(unknown_fields(document["spec"], SCHEMA["properties"]["spec"], ".spec")) == []


COMMAND = r"(?:kubectl|helm|make|python3?|git|cosign|curl|kustomize) (?=[a-z-])"
"""The start of a command of those that the pages type."""


def joined_commands(page: Path) -> list[str]:
    """Return the lines of code blocks that hold a second command without anything that separates it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    typed = [re.sub(r"#.*|'[^']*'|\"[^\"]*\"", "", line) for line in lines]
    return [
        line for line, code in zip(lines, typed, strict=True) if re.search(rf"^ +{COMMAND}[^|;&$(]* {COMMAND}", code)
    ]


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *ROOT.glob("*.md"), ROOT / "e2e/README.md"}), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_line_of_a_code_block_is_one_command(page: Path) -> None:
    assert joined_commands(page) == []


def test_joined_commands_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Type:\n\n    kubectl apply -f migration.yaml kubectl -n kafka get kmig\n    helm get values | kubectl apply -f -\n"
    )
    assert joined_commands(page) == ["    kubectl apply -f migration.yaml kubectl -n kafka get kmig"]


def test_the_readme_shows_the_example() -> None:
    shown = [d for d in yaml_blocks(ROOT / "README.md") if d.get("kind") == crd.KIND]
    assert shown == [yaml.safe_load((ROOT / "examples/env/migration.yaml").read_text())]


# ------------------------------------------------------------------------------------------------ messages

GAP = "…"


def templates() -> Iterator[str]:
    """Yield every string and f-string of the package, a filled-in part as an ellipsis."""

    def text(node: ast.expr) -> str | None:
        match node:
            case ast.Constant(value=str(value)):
                return value
            case ast.JoinedStr(values):
                return "".join(text(v) or GAP for v in values)
            case ast.BinOp(left, ast.Add(), right):
                return (text(left) or GAP) + (text(right) or GAP)
        return None

    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.expr) and (value := text(node)):
                yield value


QUOTED = re.findall(r"^```text\n(.*?)\n```", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE | re.DOTALL)


def matches(quote: str, template: str) -> bool:
    """Return whether the quote's fixed parts stand in the template, in this order."""
    at = 0
    for part in (p for p in quote.split(GAP) if p):
        at = template.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.fixture(scope="module")
def known_templates() -> list[str]:
    return [t for t in templates() if len(t) > 8]


def test_messages_are_quoted() -> None:
    assert len(QUOTED) > 15


@pytest.mark.parametrize("quote", QUOTED)
def test_a_quoted_message_exists_in_the_code(quote: str, known_templates: list[str]) -> None:
    assert any(len(part.strip()) > 8 for part in quote.split(GAP)) or quote.count(GAP) > 3, "quote more of it"
    assert any(matches(quote, template) for template in known_templates)


def test_a_message_that_does_not_exist_is_not_found(known_templates: list[str]) -> None:
    assert not any(matches("pod … is not Ready and never was", template) for template in known_templates)


# ------------------------------------------------------------------------------------------------ tables of names


def first_cells(page: Path, heading: str) -> list[str]:
    """Return the names in the first column of the first table after a heading."""
    text = page.read_text().split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return [re.findall(r"`([^`]+)`", row.split("|")[1])[0] for row in table[0].splitlines()[2:]]


def test_every_condition_is_explained() -> None:
    assert first_cells(DOCS / "operations.md", "## Follow the progress") == list(ConditionType)


def test_every_choice_of_a_deletion_is_explained() -> None:
    assert first_cells(DOCS / "operations.md", "`spec.onDeletion` determines") == list(OnDeletion)


def test_every_metric_is_explained() -> None:
    described = {
        name + {"counter": "_total", "info": "_info"}.get(collector._type, "")
        for collector in vars(metrics).values()
        if (name := getattr(collector, "_name", "")).startswith("kraftbridge_")
    }
    assert described
    assert set(first_cells(DOCS / "monitoring.md", "# Monitor a migration")) == described


def test_the_runbook_names_reasons_that_exist() -> None:
    text = (DOCS / "runbooks/KraftbridgeMigrationStalled.md").read_text().split("## Impact")[0]
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", text)) - {"Stalled"}
    assert named
    assert named <= set(Reason)


def reasons_of_stalled() -> Iterator[str]:
    """Yield each reason with which the code makes a migration stalled: `Reason.X` in a call of `Wait` with ``stalled``."""
    for file in sorted((PACKAGE / "phases").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and any(k.arg == "stalled" for k in node.keywords)):
                continue
            given = [
                n.attr
                for n in ast.walk(node)
                if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "Reason"
            ]
            yield from given or ["PROGRESSING"]


def test_the_runbook_names_every_reason_of_stalled() -> None:
    text = (DOCS / "runbooks/KraftbridgeMigrationStalled.md").read_text().split("## Impact")[0]
    found = {str(Reason[name]) for name in reasons_of_stalled()}
    assert {Reason.FINDINGS, Reason.DEADLINE_EXCEEDED, Reason.PROGRESSING} <= found
    assert not [reason for reason in sorted(found) if f"`{reason}`" not in text]


# ------------------------------------------------------------------------------------------------ the reference


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field.get("items", field), f"{path}.{name}")


FIELDS = [*fields(SCHEMA["properties"]["spec"], "spec"), *fields(SCHEMA["properties"]["status"], "status")]


@pytest.mark.parametrize(("path", "field"), FIELDS, ids=[path for path, _ in FIELDS])
def test_kubectl_explain_has_a_text_for_every_field(path: str, field: dict[str, Any]) -> None:
    assert field.get("description", "").strip(), f"{path} needs a docstring in kraftbridge.models"


# ------------------------------------------------------------------------------------------------ CONTRIBUTING

FOLDERS = sorted(
    str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if path.is_dir() and list(path.glob("*.py"))
)
TREE = re.search(r"```text\n(operator/kraftbridge/.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)


def tree_folders() -> dict[str, str]:
    """Return the folders below operator/kraftbridge that the tree of CONTRIBUTING shows, and what it says of each."""
    assert TREE is not None, "CONTRIBUTING.md shows the tree in a ```text block"
    shown: dict[str, str] = {}
    parents: list[str] = []
    for line in TREE[1].splitlines():
        found = re.match(r"( *)([a-z_]+)/ +(\S.*)", line)
        if found is None:
            continue
        depth = len(found[1]) // 2
        parents[depth - 1 :] = [found[2]]
        shown["/".join(parents)] = found[3]
    return shown


def test_contributing_shows_every_folder_of_the_package() -> None:
    missing = set(FOLDERS) - set(tree_folders())
    assert not missing, f"add one line for each to the tree in CONTRIBUTING.md: {sorted(missing)}"


def test_files_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:operator|tests|docs|e2e|helm|crds|benchmarks|requirements)/[^`*{ ]+)`", text)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


ACTIONS = [kind.__name__ for kind in get_args(Action)]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_phase_returns_every_action_and_the_simulation_executes_it(action: str) -> None:
    phases = "\n".join(path.read_text() for path in (PACKAGE / "phases").rglob("*.py"))
    assert re.search(rf"\b{action}\(", phases), f"no module of phases/ returns {action}"
    simulated = (ROOT / "tests/simulation/cluster.py").read_text()
    assert re.search(rf"\bcase {action}\(|\| {action}\(", simulated), f"Cluster.act has no arm for {action}"


@pytest.mark.parametrize("kind", EntityKind)
def test_every_kind_is_decoded_from_the_log_and_described(kind: EntityKind) -> None:
    decoders = "\n".join(path.read_text() for path in (PACKAGE / "metadata/log").glob("*.py"))
    assert f"EntityKind.{kind.name}" in decoders, "no module of metadata/log/ decodes it"
    assert f"`{kind}`" in (DOCS / "verification.md").read_text(), "docs/verification.md does not describe it"


# ------------------------------------------------------------------------------------------------ the site


def test_every_page_is_in_the_navigation() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    config.plugins.run_event("config", config=config)
    nav = [page for entry in config["nav"] for page in named_pages(entry)]
    assert sorted(nav) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def named_pages(item: Any) -> Iterator[str]:
    match item:
        case str():
            yield item
        case list():
            for part in item:
                yield from named_pages(part)
        case _:
            yield from named_pages(list(item.values()))


def test_a_warning_of_mkdocs_fails_the_build() -> None:
    commands = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "$(MKDOCS)" in line or "mkdocs build" in line
    ]
    assert any("--strict" in command for command in commands)
    assert not any("--quiet" in command for command in commands), "with --quiet mkdocs counts no warnings"


def test_the_table_of_runs_is_that_of_the_rows() -> None:
    text = (ROOT / "docs/design.md").read_text()
    assert RUNS.keys() == set(RunKind), "a kind of run without a row in RUNS"
    rows = dict(re.findall(r"^\| (\w+) \| (Launch, [^|]*\|[^|]*\|[^|]*) \|$", text, re.MULTILINE))
    assert rows.keys() == {str(kind) for kind in RUNS}
    for kind, row in RUNS.items():
        steps, limit, failure = (cell.strip() for cell in rows[kind].split("|"))
        assert steps == ", ".join(row.steps)
        assert failure == row.failure
        spec = open_gate(Phase.PREFLIGHT).spec
        named = re.fullmatch(r"`spec\.(\w+)\.(\w+)`", limit)
        if named is None:
            assert limit == f"{row.limit(spec).total_seconds():.0f} seconds for each pod"
        else:
            document = spec.model_dump(by_alias=True)
            assert document[named[1]][named[2]] == row.limit(spec).total_seconds()
