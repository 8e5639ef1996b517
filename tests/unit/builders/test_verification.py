"""A verification's objects: request, SparkApplication or Job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.every_pod import run_facts
from tests.support.golden import assert_golden
from tests.support.observations import CONTROLLERS, IDENTITY, RUN_ID, kept_copy, spec_document

from kraftbridge.builders import names, verification
from kraftbridge.models.phase import Phase
from kraftbridge.models.report import REQUEST_KEY, CompareServed, Profile, VerificationRequest
from kraftbridge.models.spec import MigrationSpec, Runner
from kraftbridge.pods import restore
from kraftbridge.services.observe.survey import whole
from kraftbridge.verification import command_line

FACTS = run_facts(image="kraftbridge/verifier:test")


def migration_spec(**changes: Any) -> MigrationSpec:
    return MigrationSpec.model_validate(spec_document(**changes))


@pytest.mark.parametrize("runner", Runner)
def test_application(runner: Runner) -> None:
    spec = migration_spec()
    assert_golden(
        [verification.config_map(spec, FACTS), verification.application(spec, FACTS, runner)],
        f"builders/verification-{runner.lower()}.yaml",
    )


@pytest.mark.parametrize("profile", Profile)
def test_the_request_names_this_run_and_asks_only_for_what_the_profile_reads(profile: Profile) -> None:
    built = verification.config_map(migration_spec(), replace(FACTS, profile=profile))
    request = VerificationRequest.model_validate_json(built["data"][REQUEST_KEY])
    assert (request.run_id, request.generation, request.phase, request.profile) == (
        RUN_ID,
        7,
        "RollingBrokers",
        profile,
    )
    assert request.migration_uid == IDENTITY.uid
    assert (request.zookeeper is not None) == (profile is not Profile.REPLICAS)
    no_logs = profile in {Profile.ZOOKEEPER, Profile.UPGRADE}
    assert [v.id for v in request.voters] == ([] if no_logs else [3000, 3001, 3002])
    assert request.config_map is not None
    assert (request.config_map.namespace, request.config_map.name) == ("kafka", built["metadata"]["name"])
    assert request.config_map.name == names.verification_config_map(RUN_ID)


def test_paths_are_given_exactly_where_a_secret_is_mounted() -> None:
    document = spec_document()
    document["zookeeper"]["secretName"] = "zk"
    document["brokers"]["clientConfigSecret"] = "client"
    document["controllers"]["listener"]["secretName"] = "listener"
    spec = MigrationSpec.model_validate(document)
    request = verification.request(spec, FACTS)
    for runner in Runner:
        text = json.dumps(verification.application(spec, FACTS, runner))
        paths = (
            request.token_path, request.ca_path, request.client_config_path, request.controller_config_path, request.password_encoder_secret_path,
            request.zookeeper.secret_path if request.zookeeper else None,
        )  # fmt: skip
        for path in paths:
            assert path is not None
            mounts = [m for m in _mounts(json.loads(text)) if path == m or path.startswith(f"{m}/")]
            assert mounts, f"{path} is asked for and not mounted"
    bare = verification.request(migration_spec(controllers={}), FACTS)
    assert bare.client_config_path is None
    assert bare.password_encoder_secret_path is None
    assert bare.zookeeper is not None
    assert bare.zookeeper.secret_path is None


@pytest.mark.parametrize("runner", Runner)
def test_a_run_before_there_are_controllers_mounts_none_of_their_secrets(runner: Runner) -> None:
    document = spec_document()
    document["controllers"]["listener"]["secretName"] = "listener"
    spec = MigrationSpec.model_validate(document)
    facts = replace(FACTS, profile=Profile.UPGRADE)
    built = json.dumps(verification.application(spec, facts, runner))
    assert names.log_reader_secret(FACTS.controllers) not in built
    request = verification.request(spec, facts)
    assert (request.token_path, request.ca_path, request.controller_config_path) == (None, None, None)
    assert names.log_reader_secret(FACTS.controllers) in json.dumps(verification.application(spec, FACTS, runner))


@pytest.mark.parametrize("runner", Runner)
def test_a_run_that_does_not_read_zookeeper_mounts_none_of_its_secrets(runner: Runner) -> None:
    """A pod waits for ever for a Secret that does not exist, and after the migration ZooKeeper's may be gone."""
    spec = migration_spec(zookeeper={**spec_document()["zookeeper"], "secretName": "zookeeper-login"})
    built = verification.application(spec, replace(FACTS, profile=Profile.REPLICAS), runner)
    assert "zookeeper-login" not in json.dumps(built)
    assert "zookeeper-login" in json.dumps(verification.application(spec, FACTS, runner))


def _mounts(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["mountPath"]] if "mountPath" in node else []
        return own + [m for v in node.values() for m in _mounts(v)]
    return [m for v in node for m in _mounts(v)] if isinstance(node, list) else []


@pytest.mark.parametrize("runner", Runner)
def test_a_run_is_never_retried_and_goes_with_its_migration(runner: Runner) -> None:
    built = verification.application(migration_spec(), FACTS, runner)
    assert [r["uid"] for r in built["metadata"]["ownerReferences"]] == [IDENTITY.uid]
    if runner is Runner.JOB:
        assert built["spec"]["backoffLimit"] == 0
        assert built["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    else:
        assert built["spec"]["restartPolicy"] == {"type": "Never"}


@pytest.mark.parametrize("length", [1, 30, 60])
def test_names_fit_into_labels(length: int) -> None:

    run_id = f"{'m' * min(length, 30)}-{IDENTITY.uid[:8]}-123"
    built = verification.application(
        migration_spec(), replace(FACTS, run_id=run_id, migration="m" * length), Runner.JOB
    )
    assert all(len(v) <= 63 for v in built["metadata"]["labels"].values())


@pytest.mark.parametrize("profile", list(Profile))
def test_brokers_are_asked_where_the_user_wants_it_and_what_they_must_serve_is_read(profile: Profile) -> None:
    document = spec_document()
    facts = replace(FACTS, profile=profile)
    for wanted in (None, *CompareServed):
        chosen = {} if wanted is None else {"compareServed": str(wanted)}
        document["verification"] = {**document.get("verification", {}), **chosen}
        request = verification.request(MigrationSpec.model_validate(document), facts)
        expected = wanted or CompareServed.IF_ALLOWED
        asks = profile in {Profile.DUAL_WRITE, Profile.UPGRADE}
        assert request.compare_served is (expected if asks else CompareServed.NEVER)
        assert request.bootstrap_servers


@pytest.mark.parametrize("gate", [Phase.ROLLING_BACK, Phase.ROLLED_BACK])
def test_a_rollback_waits_for_what_brokers_serve_only_if_the_user_insists(gate: Phase) -> None:
    document = spec_document()
    facts = replace(FACTS, profile=Profile.DUAL_WRITE, gate=gate)
    for wanted, asked in (("IfAllowed", CompareServed.NEVER), ("Always", CompareServed.ALWAYS)):
        document["verification"] = {**document.get("verification", {}), "compareServed": wanted}
        assert verification.request(MigrationSpec.model_validate(document), facts).compare_served is asked


@pytest.mark.parametrize("old", [True, False])
def test_a_boolean_is_refused_with_the_values_that_are_valid(old: bool) -> None:
    document = spec_document()
    document["verification"] = {**document.get("verification", {}), "compareServed": old}
    with pytest.raises(ValidationError, match=r"compareServed\n.*'Never', 'IfAllowed' or 'Always'"):
        MigrationSpec.model_validate(document)


RIGHTS_UID = "0a0b0c0d-0000-4000-8000-000000000000"


def test_a_run_may_read_and_patch_its_own_configmap_only() -> None:
    role, binding = verification.access(migration_spec(), FACTS, Runner.SPARK_APPLICATION, RIGHTS_UID)
    own = names.verification_config_map(RUN_ID)
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [own], "verbs": ["get", "patch"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "kraftbridge-verifier", "namespace": FACTS.namespace}
    ]


def test_rights_go_with_a_configmap_that_their_account_cannot_patch() -> None:
    owner = verification.rights_owner(FACTS)
    name = owner["metadata"]["name"]
    assert name != names.verification_config_map(RUN_ID), "the report may stay, and its account could keep it"
    assert owner["metadata"]["ownerReferences"][0]["uid"] == FACTS.migration_uid, "gone with it at the latest"
    for right in verification.access(migration_spec(), FACTS, Runner.SPARK_APPLICATION, RIGHTS_UID):
        # No blockOwnerDeletion: that asks for a right on the owner's finalizers where it is enforced.
        expected = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": RIGHTS_UID}
        assert right["metadata"]["ownerReferences"] == [expected]
        assert right["metadata"]["namespace"] == owner["metadata"]["namespace"], "or it is no owner"


@pytest.mark.parametrize("runner", Runner)
@pytest.mark.parametrize("profile", [p for p in Profile if p in {Profile.COPY, Profile.DUAL_WRITE}])
@pytest.mark.parametrize("executors", [0, 2])
def test_only_a_driver_with_executors_may_create_pods(runner: Runner, profile: Profile, executors: int) -> None:
    document = spec_document()
    document["verification"] = {**document.get("verification", {}), "executors": executors}
    spec, facts = MigrationSpec.model_validate(document), replace(FACTS, profile=profile)
    role, _ = verification.access(spec, facts, runner, RIGHTS_UID)
    pods = [rule["verbs"] for rule in role["rules"] if "pods" in rule["resources"]]
    runs_executors = runner is Runner.SPARK_APPLICATION and profile is not Profile.COPY and executors > 0
    assert pods == ([["get", "list", "watch", "create"]] if runs_executors else [])


def test_spark_needs_no_right_to_delete() -> None:
    conf = verification.application(migration_spec(), FACTS, Runner.SPARK_APPLICATION)["spec"]["sparkConf"]
    assert conf["spark.kubernetes.executor.deleteOnTermination"] == "false"
    assert conf["spark.kubernetes.executor.disableConfigMap"] == "true"
    assert conf["spark.kubernetes.driver.service.deleteOnTermination"] == "false"
    assert conf["spark.kubernetes.driver.ownPersistentVolumeClaim"] == "false"


@pytest.mark.parametrize(("executors", "instances"), [(0, 1), (1, 1), (3, 3)])
def test_a_driver_without_executors_compares_on_its_own(executors: int, instances: int) -> None:
    spec = migration_spec(verification={"executors": executors, "driverMemory": "2g"})
    built = verification.application(spec, FACTS, Runner.SPARK_APPLICATION)["spec"]
    options = command_line._parser().parse_args(built["arguments"])
    assert options.configmap == f"kafka/{names.verification_config_map(RUN_ID)}"
    assert built["executor"]["instances"] == instances, "Kubeflow's schema wants at least one"
    if executors:
        assert options.master is None
        assert "memoryOverhead" not in built["driver"], "Spark's own"
    else:
        assert options.master == "local[2]"
        assert built["driver"]["memoryOverhead"] == "2457m"


SECRET_FILE = "spark.authenticate.secret.file"


@pytest.mark.parametrize("runner", Runner)
@pytest.mark.parametrize("profile", [p for p in Profile if p in {Profile.COPY, Profile.DUAL_WRITE}])
@pytest.mark.parametrize("executors", [0, 2])
def test_a_driver_binds_to_loopback_or_shares_a_secret_with_its_executors(
    runner: Runner, profile: Profile, executors: int
) -> None:
    spec, facts = migration_spec(verification={"executors": executors}), replace(FACTS, profile=profile)
    built = verification.application(spec, facts, runner)["spec"]
    secret = verification.spark_secret(facts, "nobody-knows-this")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == IDENTITY.uid
    text = json.dumps(
        [built, verification.config_map(spec, facts), verification.access(spec, facts, runner, RIGHTS_UID)]
    )
    assert "nobody-knows-this" not in text
    if not verification.has_executors(spec, facts, runner):
        container = built.get("template", {}).get("spec", {}).get("containers", [{}])[0]
        command = container.get("command") or [verification.MAIN, *built["arguments"]]
        program = command[command.index(verification.MAIN) + 1 :]
        assert command_line._parser().parse_args(program).master == "local[2]", "open_session binds it to loopback"
        assert secret["metadata"]["name"] not in text
        return
    conf = built["sparkConf"]
    on = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")
    assert [conf[name] for name in on] == ["true"] * 3
    assert "spark.authenticate.secret" not in conf
    for part in ("driver", "executor"):
        pod = built[part]["template"]["spec"]
        (volume,) = (v for v in pod["volumes"] if v["secret"]["secretName"] == secret["metadata"]["name"])
        (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
        assert conf[SECRET_FILE] in {f"{mount['mountPath']}/{key}" for key in secret["stringData"]}
        assert mount["readOnly"]


def test_the_pods_of_a_run_admit_only_each_other() -> None:
    own, other = (verification.network_policy(replace(FACTS, run_id=run), "uid-of-config-map") for run in ("a", "b"))
    assert own["spec"]["policyTypes"] == ["Ingress"]
    assert own["spec"]["ingress"] == [{"from": [{"podSelector": own["spec"]["podSelector"]}]}], "every port"
    built = verification.application(migration_spec(), replace(FACTS, run_id="a"), Runner.SPARK_APPLICATION)["spec"]
    for part in ("driver", "executor"):
        labels = built[part]["template"]["metadata"]["labels"]
        assert own["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        assert not other["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (owner,) = own["metadata"]["ownerReferences"]
    name = verification.config_map(migration_spec(), replace(FACTS, run_id="a"))["metadata"]["name"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ConfigMap", name, "uid-of-config-map")


def test_the_job_shows_the_issued_certificate() -> None:
    spec = migration_spec(controllers={"listener": {"generate": True, "secretName": "settings"}})
    built = verification.application(spec, replace(FACTS, listener_certificate=True), Runner.JOB)
    volumes = {v["name"]: v for v in built["spec"]["template"]["spec"]["volumes"]}
    assert volumes["listener"]["secret"]["secretName"] == names.issued_listener_secret(CONTROLLERS)


@pytest.mark.parametrize(
    ("listener", "login"),
    [
        ({"generate": True}, False),
        ({"generate": True, "securityProtocol": "SASL_SSL"}, True),
        ({"generate": True, "securityProtocol": "SASL_SSL", "secretName": "logins"}, False),
    ],
)
def test_the_job_uses_the_issued_login(listener: dict[str, Any], login: bool) -> None:
    spec = migration_spec(controllers={"listener": listener})
    assert verification.request(spec, replace(FACTS, listener_certificate=True)).listener_login is login
    assert not verification.request(spec, FACTS).listener_login


def test_a_forecast_compares_the_kept_copy_in_one_pod_and_asks_nobody_else() -> None:
    copy = kept_copy(parts=2)
    facts = replace(FACTS, kept=copy)
    built = VerificationRequest.model_validate_json(
        verification.config_map(migration_spec(), facts)["data"][REQUEST_KEY]
    )
    assert [(v.id, v.log_url, v.host) for v in built.voters] == [(3000, "file:///var/lib/kraftbridge-copy", None)]
    assert built.compare_served is CompareServed.NEVER
    job = verification.application(migration_spec(), facts, Runner.SPARK_APPLICATION)
    assert job["kind"] == "Job"
    pod = job["spec"]["template"]["spec"]
    (unpack,) = pod["initContainers"]
    (size,) = (v["emptyDir"]["sizeLimit"] for v in pod["volumes"] if "emptyDir" in v)
    assert whole("memory", size) > restore.MOST_BYTES, "the program refuses a larger log before the node evicts the pod"
    assert restore.main([*unpack["command"][3:], "--directory", "nowhere"]) == 1, (
        "its arguments are known, and the copy is not here"
    )
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert mounts["log"] == "/var/lib/kraftbridge-copy"
    assert not verification.has_executors(migration_spec(), facts, Runner.SPARK_APPLICATION)


def test_the_kept_tree_has_hashes_with_a_key_of_the_attempt() -> None:
    spec, facts = migration_spec(), replace(FACTS, profile=Profile.COPY)
    secret = verification.tree_key(facts, "nobody-knows-this")
    assert secret["metadata"]["name"] == f"{facts.controllers}-tree-key", "the attempt is part of the controllers' name"
    assert secret["metadata"]["ownerReferences"][0]["uid"] == IDENTITY.uid
    (key,) = secret["stringData"]
    asked = verification.request(spec, facts)
    pod = verification.application(spec, facts, Runner.JOB)["spec"]["template"]["spec"]
    (volume,) = (v for v in pod["volumes"] if v.get("secret", {}).get("secretName") == secret["metadata"]["name"])
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
    assert asked.tree_key_path == f"{mount['mountPath']}/{key}"
    assert verification.request(spec, FACTS).tree_key_path is None
    assert "nobody-knows-this" not in json.dumps([pod, verification.config_map(spec, facts)])
