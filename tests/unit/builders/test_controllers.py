"""The quorum's objects: they outlive us, keep the migration flag exactly as long as they must, and leak nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import assert_golden
from tests.support.observations import CLUSTER_ID, CONTROLLERS, kept_copy, spec_document

from kraftbridge.builders import controllers as quorum
from kraftbridge.builders import names
from kraftbridge.constants import ACL_AUTHORIZER, ANNOTATION_CONFIGURATION, STANDARD_AUTHORIZER
from kraftbridge.models.phase import ControllerMode
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import RestoredLog
from kraftbridge.outside.properties import parse_properties
from kraftbridge.pods import restore
from kraftbridge.services.certificates import issued_principals

FLAG = "zookeeper.metadata.migration.enable"
FACTS = quorum.ControllersFacts(
    namespace="kafka",
    migration="demo",
    name=CONTROLLERS,
    cluster_domain="cluster.local",
    cluster_id=CLUSTER_ID,
    broker_settings={
        "authorizer.class.name": ACL_AUTHORIZER,
        "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "min.insync.replicas": "2",
        "zookeeper.set.acl": "true",
        "ssl.keystore.password": "hunter2",
    },
    operator_image="kraftbridge/operator:test",
    operator_namespace="kraftbridge-system",
    broker_selectors=({"matchLabels": {"app": "kafka"}},),
)


def migration_spec(**controllers: Any) -> MigrationSpec:
    document = spec_document()
    document["controllers"] |= controllers
    return MigrationSpec.model_validate(document)


def objects(mode: ControllerMode, *, format_allowed: bool = True, **controllers: Any) -> dict[str, dict[str, Any]]:
    built = quorum.controllers_objects(migration_spec(**controllers), FACTS, mode, format_allowed=format_allowed)
    return {o["kind"]: o for o in built}


def settings_in(built: dict[str, dict[str, Any]]) -> dict[str, str]:
    return parse_properties(built["ConfigMap"]["data"]["controller.properties"])


def without_hashes(built: list[dict[str, Any]], mode: ControllerMode) -> str:
    annotation = built[-1]["spec"]["template"]["metadata"]["annotations"][ANNOTATION_CONFIGURATION]
    name = next(o for o in built if o.get("immutable"))["metadata"]["name"]
    text = json.dumps(built).replace(annotation, f"{mode}-HASH")
    return text.replace(name, f"{name.rpartition('-')[0]}-HASH")


@pytest.mark.parametrize("mode", ControllerMode)
def test_objects(mode: ControllerMode) -> None:
    built = quorum.controllers_objects(migration_spec(), FACTS, mode, format_allowed=mode is ControllerMode.MIGRATION)
    assert built[-1]["kind"] == "StatefulSet", "what the pods need is there before them"
    # Hashes in the files would change with every setting of the start script: they have tests of their own.
    text = without_hashes(built, mode)
    assert_golden(json.loads(text), f"builders/controllers-{mode.lower()}.yaml")


@pytest.mark.parametrize("mode", ControllerMode)
def test_the_quorum_outlives_its_migration(mode: ControllerMode) -> None:
    built = objects(mode)
    assert "ownerReferences" not in json.dumps(built)
    retention = built["StatefulSet"]["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert set(retention.values()) == {"Retain"}


def test_the_migration_flag_is_there_exactly_in_migration_mode() -> None:
    migrating, final = settings_in(objects(ControllerMode.MIGRATION)), settings_in(objects(ControllerMode.FINAL))
    assert migrating[FLAG] == "true"
    assert migrating["zookeeper.connect"] == "zk-0.zk:2181/kafka"
    assert not [k for k in final if k.startswith("zookeeper.")]


@pytest.mark.parametrize("mode", ControllerMode)
def test_nobody_can_set_the_flag_by_configuration(mode: ControllerMode) -> None:
    for value in ("true", "false"):
        settings = settings_in(objects(mode, config={FLAG: value, "process.roles": "broker", "log.dirs": "/x"}))
        assert settings.get(FLAG) == ("true" if mode.migrates else None)
        assert settings["process.roles"] == "controller"
        assert settings["log.dirs"] != "/x"


def test_a_container_that_merely_restarts_keeps_its_mode() -> None:
    maps = {mode: objects(mode)["ConfigMap"]["metadata"]["name"] for mode in ControllerMode}
    assert len(set(maps.values())) == len(ControllerMode)
    for mode, name in maps.items():
        volumes = objects(mode)["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
        assert {"name": "config", "configMap": {"name": name}} in volumes


def test_controllers_change_only_when_we_say_so() -> None:
    built = objects(ControllerMode.MIGRATION)["StatefulSet"]["spec"]
    assert built["updateStrategy"] == {"type": "OnDelete"}
    assert built["podManagementPolicy"] == "Parallel"
    assert built["ordinals"] == {"start": 3000}


def test_the_configuration_changes_with_what_matters() -> None:
    spec = migration_spec()
    seen = {
        quorum.configuration(spec, FACTS, ControllerMode.MIGRATION),
        quorum.configuration(spec, FACTS, ControllerMode.FINAL),
        quorum.configuration(migration_spec(config={"num.network.threads": "9"}), FACTS, ControllerMode.MIGRATION),
        quorum.configuration(migration_spec(heapOptions="-Xmx1g"), FACTS, ControllerMode.MIGRATION),
        quorum.configuration(spec, replace(FACTS, cluster_id="other"), ControllerMode.MIGRATION),
        quorum.configuration(spec, replace(FACTS, operator_image="other"), ControllerMode.MIGRATION),
    }
    assert len(seen) == 6
    assert quorum.configuration(spec, FACTS, ControllerMode.MIGRATION).startswith("Migration-")


def test_format_is_said_in_so_many_words() -> None:
    def word(*, format_allowed: bool, reformat: int | None = None) -> dict[str, Any]:
        mode = ControllerMode.MIGRATION
        built = quorum.controllers_objects(
            migration_spec(), FACTS, mode, format_allowed=format_allowed, reformat=reformat
        )
        found = next(o for o in built if o["metadata"]["name"] == f"{CONTROLLERS}-format")
        assert "immutable" not in found, "it changes while pods wait for it"
        return dict(found["data"])

    assert word(format_allowed=True) == {quorum.WORD_KEY: "allowed"}
    assert word(format_allowed=False) == {quorum.WORD_KEY: "refused"}
    assert word(format_allowed=False, reformat=3001) == {quorum.WORD_KEY: "3001"}


def configuration_of(spec: MigrationSpec, mode: ControllerMode, **facts: Any) -> dict[str, Any]:
    built = quorum.controllers_objects(spec, replace(FACTS, **facts), mode, format_allowed=False)
    (found,) = [o for o in built if o.get("immutable")]
    volumes = built[-1]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "config", "configMap": {"name": found["metadata"]["name"]}} in volumes
    return found


SETTING = st.sampled_from(["num.network.threads", "num.io.threads", "socket.send.buffer.bytes"])
CONFIGURATIONS = st.builds(
    configuration_of,
    st.builds(
        migration_spec,
        config=st.dictionaries(SETTING, st.sampled_from(["1", "2"]), max_size=2),
        heapOptions=st.sampled_from([None, "-Xmx1g"]),
        superUsers=st.lists(st.sampled_from(["User:a", "User:b"]), max_size=2),
        replicas=st.sampled_from([1, 3]),
    ),
    st.sampled_from(ControllerMode),
    operator_image=st.sampled_from(["one", "two"]),
    cluster_id=st.sampled_from([CLUSTER_ID, "other"]),
    minimum_batch_size=st.sampled_from([None, 100]),
)


@given(CONFIGURATIONS, CONFIGURATIONS)
def test_a_configuration_has_another_name_exactly_if_its_content_is_another(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = one["metadata"]["name"], other["metadata"]["name"]
    assert names.has_its_content(first, one["data"])
    assert names.is_configuration(CONTROLLERS, first)
    assert names.has_its_content(first, other["data"]) is (one["data"] == other["data"])
    assert first != second or one["data"] == other["data"]
    assert one["data"] != other["data"] or first.rpartition("-")[2] == second.rpartition("-")[2]


@pytest.mark.parametrize(
    "name", [f"{CONTROLLERS}-format", f"{CONTROLLERS}-2-migration-0123456789", f"{CONTROLLERS}-migration", "kafka"]
)
def test_other_config_maps_are_no_configurations_of_these_controllers(name: str) -> None:
    assert not names.is_configuration(CONTROLLERS, name)


def test_a_word_changes_no_template_and_no_configuration() -> None:
    mode = ControllerMode.MIGRATION
    allowed = quorum.controllers_objects(migration_spec(), FACTS, mode, format_allowed=True)
    one = quorum.controllers_objects(migration_spec(), FACTS, mode, format_allowed=False, reformat=3001)
    assert [o for o in allowed if o not in one] == [o for o in allowed if o["metadata"]["name"].endswith("-format")]


def test_a_configuration_that_cannot_be_rendered_any_more_is_given_up_with_the_template_that_names_it() -> None:
    built = quorum.controllers_objects(migration_spec(), FACTS, ControllerMode.MIGRATION, format_allowed=False)
    (own,) = [o for o in built if o.get("immutable")]
    assert quorum.chosen(built, ()) == built
    assert quorum.chosen(built, (f"ConfigMap/{own['metadata']['name']}",)) == [own]
    assert quorum.chosen(built, (f"Secret/{CONTROLLERS}-log-server",)) == []
    assert quorum.chosen(built, (f"ConfigMap/{CONTROLLERS}-migration-0123456789",)) == built


def test_only_what_controllers_need_is_copied_from_brokers() -> None:
    settings = settings_in(objects(ControllerMode.MIGRATION))
    assert settings["min.insync.replicas"] == "2"
    assert settings["authorizer.class.name"] == STANDARD_AUTHORIZER
    assert settings["listener.security.protocol.map"] == "CONTROLLER:SSL,INTERNAL:SASL_PLAINTEXT"
    assert "hunter2" not in json.dumps(objects(ControllerMode.MIGRATION))
    own = settings_in(objects(ControllerMode.MIGRATION, config={"min.insync.replicas": "1"}))
    assert own["min.insync.replicas"] == "1", "the user's word for the controllers counts more"


def test_secrets_are_mounted_never_written() -> None:
    built = objects(
        ControllerMode.MIGRATION, listener={"securityProtocol": "SASL_SSL", "secretName": "controller-listener"}
    )
    text = json.dumps(built)
    assert '"secretName": "controller-listener"' in text
    kafka = built["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    encoder = next(e for e in kafka["env"] if e["name"] == "PASSWORD_ENCODER_SECRET")
    assert "value" not in encoder


@pytest.mark.parametrize("mode", ControllerMode)
def test_the_controllers_listener_is_fenced(mode: ControllerMode) -> None:
    policy = objects(mode)["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert all(rule["from"] and all(rule["from"]) for rule in policy["ingress"]), "an empty peer would let everybody in"
    selector = objects(mode)["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert policy["podSelector"]["matchLabels"] == selector


@pytest.mark.parametrize("mode", ControllerMode)
def test_pods_are_restricted(mode: ControllerMode) -> None:
    pod = objects(mode)["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("replicas", [1, 3, 5])
def test_every_voter_is_named(replicas: int) -> None:
    voters = settings_in(objects(ControllerMode.MIGRATION, replicas=replicas))["controller.quorum.voters"].split(",")
    assert [v.partition("@")[0] for v in voters] == [str(3000 + i) for i in range(replicas)]
    assert len(set(voters)) == replicas


def test_budgets_of_two_attempts_never_share_a_pod() -> None:
    """The Eviction API refuses a pod that two budgets select: what an earlier attempt left must not stop a later one."""
    first, second = (_budgeted(replace(FACTS, name=name)) for name in ("demo-kraft", "demo-kraft-2"))
    assert first == ["demo-kraft-3000", "demo-kraft-3001", "demo-kraft-3002"]
    assert not set(first) & set(second)


def _budgeted(facts: quorum.ControllersFacts) -> list[str]:
    built = quorum.controllers_objects(migration_spec(), facts, ControllerMode.MIGRATION, format_allowed=True)
    (budget,) = (o for o in built if o["kind"] == "PodDisruptionBudget")
    (names,) = (e["values"] for e in budget["spec"]["selector"]["matchExpressions"])
    return list(names)


def test_isolated_controllers_find_each_other_where_no_broker_looks() -> None:
    """At the end of a rollback: the voters and the operator use a port that the brokers neither know nor may reach."""
    isolated, usual = objects(ControllerMode.ISOLATED), objects(ControllerMode.MIGRATION)
    settings, before = settings_in(isolated), settings_in(usual)
    port = str(ControllerMode.ISOLATED.port)
    assert settings["listeners"].endswith(f":{port}")
    assert all(voter.endswith(f":{port}") for voter in settings["controller.quorum.voters"].split(","))
    assert port not in before["listeners"] + before["controller.quorum.voters"]
    # Brokers that cannot send heartbeats keep their leaderships.
    assert int(settings["broker.session.timeout.ms"]) >= 3_600_000
    differing = {k for k in settings | before if settings.get(k) != before.get(k)}
    assert differing == {"listeners", "controller.quorum.voters", "broker.session.timeout.ms"}
    (container, _) = isolated["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["tcpSocket"]["port"] == ControllerMode.ISOLATED.port
    (rule,) = [
        rule
        for rule in usual["NetworkPolicy"]["spec"]["ingress"]
        if {"port": ControllerMode.ISOLATED.port, "protocol": "TCP"} in rule["ports"]
    ]
    assert len(rule["from"]) == 2, "controllers and operator, no broker"


def test_certificates_are_converted_by_an_init_container_of_the_same_user() -> None:
    pod = objects(ControllerMode.MIGRATION, listener={"securityProtocol": "SSL", "secretName": "certificate"})
    spec = pod["StatefulSet"]["spec"]["template"]["spec"]
    _, credentials = spec["initContainers"]
    assert credentials["command"][:3] == ["python", "-m", "kraftbridge.pods.credentials"]
    assert credentials["command"][3:] == [
        "--directory", quorum.CREDENTIALS, "--listener", quorum.LISTENER_SECRET, "--protocol", "SSL",
    ]  # fmt: skip
    assert {"name": "credentials", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}} in spec["volumes"]
    without = objects(ControllerMode.MIGRATION)["StatefulSet"]["spec"]["template"]["spec"]
    assert [c["name"] for c in without["initContainers"]] == ["agent"]


def test_a_rotated_secret_is_another_configuration() -> None:
    spec = migration_spec(listener={"securityProtocol": "SSL", "secretName": "certificate"})
    seen = {
        quorum.configuration(spec, replace(FACTS, credentials=c), ControllerMode.MIGRATION)
        for c in ({}, {"certificate": "1"}, {"certificate": "2"})
    }
    assert len(seen) == 3


def test_issued_certificates_lie_beside_the_users_settings_and_win() -> None:
    listener = {"securityProtocol": "SASL_SSL", "secretName": "logins", "generate": True}
    spec = objects(ControllerMode.MIGRATION, listener=listener)["StatefulSet"]["spec"]["template"]["spec"]
    (volume,) = [v for v in spec["volumes"] if v["name"] == "listener"]
    issued = f"{FACTS.name}-listener"
    assert volume["projected"]["sources"] == [{"secret": {"name": "logins"}}, {"secret": {"name": issued}}]
    assert "--listener" in spec["initContainers"][1]["command"]
    assert "listener" in {m["name"] for m in spec["containers"][0]["volumeMounts"]}


def test_the_principals_of_what_the_operator_issues_are_super_users_under_their_own_names() -> None:
    rule = "listener.name.controller.ssl.principal.mapping.rules"

    def settings(**listener: Any) -> dict[str, str]:
        spec = migration_spec(listener=listener)
        facts = replace(FACTS, issued_principals=issued_principals("1a2b3c4d-0000", spec.controllers.listener))
        return quorum.controller_settings(spec, facts, ControllerMode.MIGRATION)

    issued = settings(securityProtocol="SSL", generate=True)
    called = "User:CN=kraftbridge-controllers-1a2b3c4d;User:CN=kraftbridge-brokers-1a2b3c4d"
    assert issued["super.users"].endswith(called)
    assert issued[rule] == "DEFAULT"
    logins = settings(securityProtocol="SASL_SSL", generate=True)
    assert logins["super.users"].endswith("User:kraftbridge-controllers-1a2b3c4d;User:kraftbridge-brokers-1a2b3c4d")
    assert rule not in logins
    for other in (
        settings(securityProtocol="SSL", secretName="certificate"),
        settings(securityProtocol="SASL_SSL", secretName="logins", generate=True),
    ):
        assert rule not in other
        assert "kraftbridge" not in other.get("super.users", "")


def test_controllers_that_are_restored_read_the_copy_first_and_carry_nothing_of_it_afterwards() -> None:
    copy = RestoredLog.of(kept_copy(parts=2), 1_002)
    spec, mode = migration_spec(), ControllerMode.MIGRATION
    restoring = replace(FACTS, restored=copy)
    built = quorum.controllers_objects(spec, restoring, mode, format_allowed=False)
    pod = built[-1]["spec"]["template"]["spec"]
    container = pod["initContainers"][-1]
    assert container["name"] == "restore"
    command = [word.replace("$(NODE_ID)", "3001").replace("$(CLUSTER_ID)", "-a") for word in container["command"][3:]]
    assert restore.main(command) == 1, "its arguments are known, and the copy is not here"
    (volume,) = [v for v in pod["volumes"] if v["name"] == "kept-copy"]
    assert [s["secret"]["name"] for s in volume["projected"]["sources"]] == [copy.secret, f"{copy.secret}-part-1"]
    assert next(o for o in built if o["kind"] == "ConfigMap")["data"] == {quorum.WORD_KEY: "refused"}
    plain = quorum.controllers_objects(spec, FACTS, mode, format_allowed=False)
    assert "restore" not in json.dumps(plain)
    assert quorum.configuration(spec, restoring, mode) != quorum.configuration(spec, FACTS, mode)


CLEAN = replace(FACTS, clean=True, cleaned=True)
LISTENERS: list[dict[str, Any]] = [
    {"securityProtocol": "PLAINTEXT"},
    {"securityProtocol": "SSL", "secretName": "certificate"},
    {"securityProtocol": "SASL_SSL", "secretName": "logins", "generate": True},
]


def clean_objects(**changes: Any) -> dict[str, dict[str, Any]]:
    """Return the objects of controllers without the operator's image, of a migration with a Secret for ZooKeeper."""
    document = spec_document()
    document["zookeeper"]["secretName"] = "for-zookeeper"
    document["controllers"] |= changes
    spec = MigrationSpec.model_validate(document)
    return {o["kind"]: o for o in quorum.controllers_objects(spec, CLEAN, ControllerMode.FINAL, format_allowed=False)}


def test_clean_objects() -> None:
    built = quorum.controllers_objects(migration_spec(), CLEAN, ControllerMode.FINAL, format_allowed=False)
    assert_golden(json.loads(without_hashes(built, ControllerMode.FINAL)), "builders/controllers-clean.yaml")


@pytest.mark.parametrize("listener", LISTENERS)
def test_clean_controllers_have_no_image_of_ours_and_no_volume_that_nothing_mounts(listener: dict[str, Any]) -> None:
    built = clean_objects(listener=listener)
    pod = built["StatefulSet"]["spec"]["template"]["spec"]
    assert "initContainers" not in pod
    (kafka,) = pod["containers"]
    assert kafka["image"] == migration_spec().controllers.image
    assert FACTS.operator_image not in json.dumps(built)
    mounted = {mount["name"] for mount in kafka["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]} | {"data"}
    assert not mounted & {"agent", "log-server", "zookeeper"}
    text = json.dumps(built)
    for ours in ("javaagent", "jmx", "9404", "log-server", "for-zookeeper"):
        assert ours not in text


def test_clean_controllers_run_with_the_settings_that_they_had() -> None:
    clean = clean_objects()
    usual = objects(ControllerMode.FINAL, format_allowed=False)
    assert settings_in(clean) == settings_in(usual)
    name = clean["ConfigMap"]["metadata"]["name"]
    assert name not in {objects(mode)["ConfigMap"]["metadata"]["name"] for mode in ControllerMode}, (
        "a container of a pod that is not restarted yet keeps its start script"
    )
    volumes = clean["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "config", "configMap": {"name": name}} in volumes
    assert set(clean["ConfigMap"]["data"]) == {"controller.properties", "start.sh"}


def test_helpers_stay_reachable_until_the_last_controller_has_restarted() -> None:
    """The gates before each restart read the metrics of those that run the older template."""
    rolling = replace(FACTS, clean=True)
    built = {
        o["kind"]: o
        for o in quorum.controllers_objects(migration_spec(), rolling, ControllerMode.FINAL, format_allowed=False)
    }
    usual = objects(ControllerMode.FINAL, format_allowed=False)
    for kind in ("Service", "NetworkPolicy"):
        assert built[kind] == usual[kind]
        assert clean_objects()[kind] != usual[kind]


def test_the_configuration_says_whether_it_is_clean() -> None:
    spec = migration_spec()
    usual = quorum.configuration(spec, FACTS, ControllerMode.FINAL)
    clean = quorum.configuration(spec, CLEAN, ControllerMode.FINAL)
    assert usual != clean
    assert clean == quorum.configuration(spec, replace(CLEAN, operator_image="other"), ControllerMode.FINAL)
