"""What the user's own release of the brokers must render once they run KRaft, and the manifests that show it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

import yaml

from kraftbridge.builders.bitnami import PREFIX, writes_to_zookeeper
from kraftbridge.builders.broker_overlays import (
    FIRST_PASS_DELAY,
    ISSUED_VOLUME,
    BrokerFacts,
    broker_settings,
    environment,
    image_variables,
    mode_variables,
    overlaid_variable,
    overlay,
    properties_file,
    properties_object,
    setting_of,
)
from kraftbridge.builders.template import EXPANSION
from kraftbridge.constants import (
    ANNOTATION_BROKER_MODE,
    ANNOTATION_CONFIGURATION,
    CONTROLLER_LISTENER_PREFIX,
    FIELD_MANAGER,
)
from kraftbridge.models.broker_settings import variable_of
from kraftbridge.models.metadata_version import release_of
from kraftbridge.models.mounted_files import FilesKind, mounted_object
from kraftbridge.models.objects import entries, section, variables_of
from kraftbridge.models.phase import BrokerMode
from kraftbridge.models.protocol import BRIDGE, refused_by_kraft
from kraftbridge.models.protocol import SETTING as PROTOCOL
from kraftbridge.models.spec import MigrationSpec
from kraftbridge.models.status import (
    GuardedStatefulSet,
    ListenerCertificatesStatus,
    ReferringVariable,
    RequiredVariable,
)
from kraftbridge.outside.json_text import parsed_json
from kraftbridge.outside.properties import parse_properties

_CONFLUENT_PREFIX: Final = "KAFKA_"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ABOUT_ORDER: Final = (
    "Variables without a value keep the order of yours. "
    "Delete such an entry when you delete its variable from your manifest."
)
_ABOUT_VARIABLES: Final = "Put the entries of extraEnvVars into your own list, in place of those of the same name"
_WITHOUT_ZOOKEEPER: Final[Mapping[str, Any]] = {"zookeeper": {"enabled": False}, "externalZookeeper": {"servers": []}}
"""Values of the Bitnami chart."""
_ABOUT_BITNAMI: Final = (
    f"{_ABOUT_VARIABLES}. With zookeeper.enabled=false the chart removes its own ZooKeeper; the volumes stay"
)
_ABOUT_BITNAMI_FILE: Final = (
    f"{_ABOUT_BITNAMI}. "
    "The ConfigMap has the controllers' real listener; "
    "listeners.controller only keeps the chart from adding variables for it"
)
_PROVIDED: Final = re.compile(r"\$\{(?:[^{}:]*::?)?([^{}:]+)\}")
"""``${env:NAME}`` of Kafka's providers (KIP-421). The kubelet leaves a ``$`` of ``$${env:NAME}``."""
_IN_FILE: Final = re.compile(r"\$\{[^{}:]*:(/[^{}:]*):[^{}]*\}")
"""``${file:PATH:KEY}`` and ``${dir:PATH:FILE}`` of Kafka's providers (KIP-421, KIP-632)."""
_IN_SHELL: Final = re.compile(r"\$\{?(\w+)(?!\w|:?[-+=])")
"""``$NAME``, ``${NAME}`` and ``${NAME##…}`` in a command of the image. ``${NAME:-…}`` does without the variable."""
_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations")


def required(
    spec: MigrationSpec, facts: BrokerFacts, name: str, template: Mapping[str, Any] | None = None
) -> GuardedStatefulSet:
    """Return what the pod template of a StatefulSet must have for its brokers to run KRaft.

    Parameters
    ----------
    spec
        The migration's spec.
    facts
        What the overlay is computed from.
    name
        Name of the StatefulSet.
    template
        Pod template of the last roll: the user's own values, and the order of the variables.

    Notes
    -----
    ``process.roles``, the voters and the controllers' listener name make a KRaft broker (KIP-866),
    and the listener must be in the protocol map.
    ``kafka.security.authorizer.AclAuthorizer`` needs ZooKeeper (KIP-801).
    ``CLUSTER_ID`` is what images format new disks with.
    ``JAVA_TOOL_OPTIONS`` only makes restarts quicker,
    and the delay of the first retention pass is for the comparison alone, so neither is required.
    The variables of ``spec.brokers.upgrade.env`` are required in either style,
    since the image was proven with them; without such an entry the user's former value may come back.
    """
    container = spec.brokers.container
    source = spec.brokers.file
    of_image = image_variables(spec, facts, BrokerMode.KRAFT)
    of_upgrade = {} if facts.upgrade is None else dict(facts.upgrade.env)
    for set_otherwise in ("JAVA_TOOL_OPTIONS", *of_image):
        of_upgrade.pop(set_otherwise, None)
    if source is not None:
        volumes = overlay(spec, facts, name, BrokerMode.KRAFT)["spec"]["template"]["spec"].get("volumes", [])
        kind, mounted = mounted_object(volumes, source.volume) or (FilesKind.CONFIG_MAP, "")
        secret = kind is FilesKind.SECRET
        return GuardedStatefulSet(
            name=name,
            container=container,
            variables=_required_variables(of_upgrade),
            volume=source.volume,
            config_map="" if secret else mounted,
            secret=mounted if secret else "",
            references=_references(spec, facts, template),
            issued_secret=facts.issued_secret,
            image="" if facts.upgrade is None else facts.upgrade.image,
        )
    protocol_map = overlaid_variable("listener.security.protocol.map", spec.brokers.env_prefix, facts.given)
    variables = of_upgrade | mode_variables(spec, facts, BrokerMode.KRAFT)
    variables[protocol_map] = variables[protocol_map].partition(",")[0]
    variables.pop(overlaid_variable(FIRST_PASS_DELAY, spec.brokers.env_prefix, facts.given))
    protocol = overlaid_variable(PROTOCOL, spec.brokers.env_prefix, facts.given)
    variables.pop(protocol, None)  # KRaft ignores it from 3.0 on
    return GuardedStatefulSet(
        name=name,
        container=container,
        variables=_required_variables(variables, protocol_map),
        present_variables=_logins(spec, facts),
        empty_variables=tuple(sorted(name for name, value in of_image.items() if not value)),
        protocol_variable=protocol,
        references=_references(spec, facts, template),
        issued_secret=facts.issued_secret,
        image="" if facts.upgrade is None else facts.upgrade.image,
    )


def _required_variables(variables: Mapping[str, str], protocol_map: str = "") -> tuple[RequiredVariable, ...]:
    return tuple(
        RequiredVariable(name=variable, value=value, entry=variable == protocol_map)
        for variable, value in sorted(variables.items())
    )


def _references(
    spec: MigrationSpec, facts: BrokerFacts, template: Mapping[str, Any] | None
) -> tuple[ReferringVariable, ...]:
    """Return the references of the overlay's variables, its file and the login, and of what these refer to in turn.

    Without the one that it refers to, a command prints nothing, and ``$(NAME)`` stays as it is.
    Only the reference itself is recorded: the rest of a value is the user's.
    The file has no name; the kubelet expands nothing in it.
    """
    container = _container(spec.brokers.container, template)
    ours = environment(spec, facts, BrokerMode.KRAFT)
    values = {name: str(entry.get("value") or "") for name, entry in variables_of(container).items()} | ours
    known = facts.given | values.keys()
    commands = set(image_variables(spec, facts, BrokerMode.KRAFT))
    found: dict[str, list[ReferringVariable]] = {}
    pending = [*ours, *_logins(spec, facts)]
    if spec.brokers.file is not None:
        settings = parse_properties(properties_file(spec, facts, BrokerMode.KRAFT))
        values[""] = "\n".join(settings.values())
        pending.append("")
    while pending:
        name = pending.pop()
        if name in found:
            continue
        value = values.get(name, "")
        matches = list(_PROVIDED.finditer(value))
        if name:
            matches += [match for match in EXPANSION.finditer(value) if _is_expanded(match[1], name, container)]
        if name in commands:
            matches += _IN_SHELL.finditer(value)
        texts = {match[0]: match[1] for match in matches if match[1] in known}
        paths = {match[0]: match[1] for match in _IN_FILE.finditer(value) if _is_mounted(match[1], container)}
        found[name] = [ReferringVariable(name=name, value=t, refers_to=(n,)) for t, n in sorted(texts.items())]
        found[name] += [
            ReferringVariable(name=name, value=t, refers_to=(), paths=(path,)) for t, path in sorted(paths.items())
        ]
        pending += texts.values()
        if name in commands:
            commands.update(texts.values())
    return tuple(reference for _, references in sorted(found.items()) for reference in references)


def _is_expanded(variable: str, name: str, container: Mapping[str, Any]) -> bool:
    """Return whether the kubelet expands ``$(variable)`` in the value of ``name``, where the container has both."""
    names = [entry["name"] for entry in entries(container, "env")]
    if variable == name:
        return name not in names or bool(container.get("envFrom"))
    return not _is_behind(variable, name, names)


def _is_mounted(path: str, container: Mapping[str, Any]) -> bool:
    """Return whether a container mounts a volume at a path or above it."""
    mounts = entries(container, "volumeMounts")
    return any(PurePosixPath(path).is_relative_to(mount["mountPath"]) for mount in mounts)


def _is_behind(variable: str, name: str, names: Sequence[str]) -> bool:
    """Return whether a variable stands behind another one. Of two entries of one name the later one counts."""
    return variable in names and name in names[: names.index(variable)] and name not in names[names.index(variable) :]


def _logins(spec: MigrationSpec, facts: BrokerFacts) -> tuple[str, ...]:
    """Return the user's variables with the brokers' login to the controllers, with ``configStyle: Env``."""
    if spec.brokers.file is not None:
        return ()
    return tuple(sorted({variable for variable in facts.variables if _is_login(variable, spec.brokers.env_prefix)}))


def _is_login(variable: str, prefix: str) -> bool:
    """Return whether a variable says how a broker logs in at the controllers' listener."""
    setting = setting_of(variable, prefix) or ""
    return setting == "sasl.mechanism.controller.protocol" or setting.startswith(CONTROLLER_LISTENER_PREFIX)


def lacking(needed: GuardedStatefulSet, template: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what of ``needed`` a pod template lacks, in words; the chart's admission policy judges in the same way."""
    container = _container(needed.container, template)
    variables = variables_of(container)
    env = {name: str(entry.get("value", "")) for name, entry in variables.items()}
    missing = [variable.words for variable in needed.variables if not _has(variable, env.get(variable.name))]
    release = release_of(str(container.get("image", "")))
    oldest = max(release_of(needed.image) or BRIDGE, BRIDGE)
    if needed.image and release is not None and release < oldest:
        missing.append(f"an image with Kafka {oldest}, such as {needed.image}")
    if not container.get("envFrom"):
        missing += [name for name in needed.present_variables if name not in env]
    missing += dict.fromkeys(
        words
        for reference in needed.references
        if _stands(reference, needed, template)
        for words in _dangling(reference, container)
    )
    missing += [
        f"no {name}" for name in needed.empty_variables if env.get(name) or "valueFrom" in variables.get(name, {})
    ]
    if needed.volume and not _mounts_kraft_properties(needed, template):
        missing.append(f"volume {needed.volume} with {needed.mounted}")
    missing += _uncertified(needed, template, container)
    missing += [f"no {name}={env[name]}" for name in writes_to_zookeeper(env)]
    if refused_by_kraft(env.get(needed.protocol_variable, "")):
        missing.append(f"no {needed.protocol_variable}={env[needed.protocol_variable]}")
    return tuple(missing)


def _container(name: str, template: Mapping[str, Any] | None) -> Mapping[str, Any]:
    containers = entries(template, "spec", "containers")
    return next((c for c in containers if c.get("name") == name), {})


def owner_renders(needed: GuardedStatefulSet, stateful_set: Mapping[str, Any]) -> bool:
    """Return whether the owner of a StatefulSet has applied every field that its template needs.

    Two tools leave such a record: ``kubectl apply`` in its annotation, server-side apply in ``managedFields``.
    Helm 3 leaves none where its values agree with what the StatefulSet has already.
    """
    if lacking(needed, stateful_set["spec"]["template"]):
        return False
    if needed.volume and _is_in_kraft_mode(stateful_set["spec"]["template"]):
        return True
    metadata = stateful_set["metadata"]
    try:
        applied = parsed_json(section(metadata, "annotations").get(_LAST_APPLIED) or "{}")
    except ValueError:
        applied = {}
    template = section(applied, "spec").get("template")
    if template is not None and not lacking(needed, template):
        return True
    paths = tuple(_paths(needed, stateful_set["spec"]["template"]))
    return any(
        all(_owns(section(entry, "fieldsV1"), path) for path in paths)
        for entry in entries(metadata, "managedFields")
        if _applied_by_another(entry)
    )


def _applied_by_another(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of ``managedFields`` is of a server-side apply that is not the operator's."""
    if entry.get("manager") == FIELD_MANAGER or entry.get("subresource"):
        return False
    return entry.get("operation") == "Apply"


def _is_in_kraft_mode(template: Mapping[str, Any]) -> bool:
    return section(template, "metadata", "annotations").get(ANNOTATION_BROKER_MODE) == BrokerMode.KRAFT


def broker_manifests(spec: MigrationSpec, facts: Mapping[str, BrokerFacts], migration: str) -> dict[str, str]:
    """Return by file name what the next release of the brokers must contain, in the forms that people use.

    Parameters
    ----------
    spec
        The migration's spec.
    facts
        By StatefulSet, what its overlay is computed from.
    migration
        Name of the migration, for labels.
    """
    documents = []
    patches = []
    files = {}
    for name, of_set in facts.items():
        ours = overlay(spec, of_set, name, _final_mode(of_set))
        documents.append(ours)
        properties = properties_object(spec, of_set, migration, BrokerMode.KRAFT)
        if properties is not None and properties["kind"] != FilesKind.SECRET:
            documents.append(properties)  # a Secret stays where it is
        patches.append(_kustomize_patch(of_set, name, ours))
        advice = _ABOUT_BITNAMI if spec.brokers.file is None else _ABOUT_BITNAMI_FILE
        files[f"values-bitnami-{name}.yaml"] = _values(
            f"the Bitnami chart (bitnami/kafka). {advice}", _bitnami_values(spec, of_set, ours)
        )
        if spec.brokers.file is None and spec.brokers.env_prefix == _CONFLUENT_PREFIX:
            files[f"values-cp-kafka-{name}.yaml"] = _values(
                "the chart cp-kafka (cp-helm-charts)", _confluent_values(spec, of_set, ours)
            )
    return {
        "brokers.yaml": yaml.safe_dump_all(documents, sort_keys=False),
        "kustomize-patch.yaml": f"# {_ABOUT_ORDER}\n{yaml.safe_dump_all(patches, sort_keys=False)}",
        **files,
    }


def _final_mode(facts: BrokerFacts) -> BrokerMode:
    """Return the mode in which the owner gets the brokers."""
    return BrokerMode.KRAFT if facts.kafka4 is None else BrokerMode.KAFKA4


def about_certificates(issued: ListenerCertificatesStatus) -> str:
    """Return what the user does about the certificates that the operator issued."""

    def end(at: datetime | None) -> str:
        return "unknown" if at is None else f"{at:%Y-%m-%d}"

    return (
        "The operator issued the certificates of the controllers' listener. "
        "No Secret below is part of these manifests: each stays where it is.\n"
        "The operator renews the certificates while it runs and the KafkaMigration exists. "
        "After that nobody does, and no broker\n"
        "reaches a controller whose certificate has expired: renew them as in docs/kraft.md, 'Renew certificates'.\n\n"
        f"authority:    Secret {issued.authority_secret}; keep it, since it signs every later certificate\n"
        f"controllers:  Secret {issued.controllers_secret}, valid until {end(issued.controllers_expire_at)}\n"
        f"brokers:      Secret {issued.brokers_secret}, valid until {end(issued.brokers_expire_at)}\n"
    )


def exported(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a live object as a manifest: without status and without what the API server keeps in its metadata."""
    kept = {k: v for k, v in obj.items() if k not in ("metadata", "status")}
    metadata = {k: obj["metadata"][k] for k in _KEPT_METADATA if obj["metadata"].get(k)}
    return {"apiVersion": kept.pop("apiVersion"), "kind": kept.pop("kind"), "metadata": metadata, **kept}


def _uncertified(
    needed: GuardedStatefulSet, template: Mapping[str, Any], container: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what the brokers' certificate lacks: its volume, or the mount in Kafka's container."""
    if not needed.issued_secret:
        return
    if not _volumes_of(needed.issued_secret, template):
        yield f"a volume with Secret {needed.issued_secret}"
    elif not _mounts_of(needed.issued_secret, template, container):
        yield f"a mount of Secret {needed.issued_secret} in container {needed.container}"


def _volumes_of(secret: str, template: Mapping[str, Any]) -> set[str]:
    """Return the names of the volumes with a Secret."""
    volumes = entries(template, "spec", "volumes")
    return {volume["name"] for volume in volumes if section(volume, "secret").get("secretName") == secret}


def _mounts_of(secret: str, template: Mapping[str, Any], container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the mounts of a Secret in a container."""
    volumes = _volumes_of(secret, template)
    return [mount for mount in entries(container, "volumeMounts") if mount["name"] in volumes]


def _has(variable: RequiredVariable, value: str | None) -> bool:
    if variable.entry and value is not None:
        return variable.value in [entry.strip() for entry in value.split(",")]
    return value == variable.value


def _stands(reference: ReferringVariable, needed: GuardedStatefulSet, template: Mapping[str, Any]) -> bool:
    """Return whether the template still has a reference: in the variable, or in the operator's properties file."""
    if not reference.name:
        return _mounts_our_file(needed, template)
    entry = variables_of(_container(needed.container, template)).get(reference.name, {})
    return reference.value in str(entry.get("value") or "")


def _dangling(reference: ReferringVariable, container: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is referred to in vain: it is gone, or the kubelet expands a variable's value before it."""
    referring = reference.name or "the properties file"
    names = [entry["name"] for entry in entries(container, "env")]
    # A value that refers to its own name means that of ``envFrom``.
    gone = [name for name in reference.refers_to if name not in names or name == reference.name]
    if gone and not container.get("envFrom"):
        yield f"{', '.join(gone)}, to which {referring} refers"
    for name in reference.refers_to:
        if f"$({name})" in reference.value and _is_behind(name, reference.name, names):
            yield f"{name} before {reference.name}, which refers to it"
    for path in reference.paths:
        if not _is_mounted(path, container):
            yield f"a mount with {path}, to which {referring} refers"


def _mounts_kraft_properties(needed: GuardedStatefulSet, template: Mapping[str, Any]) -> bool:
    return _is_in_kraft_mode(template) or _mounts_our_file(needed, template)


def _mounts_our_file(needed: GuardedStatefulSet, template: Mapping[str, Any]) -> bool:
    wanted = (FilesKind.SECRET, needed.secret) if needed.secret else (FilesKind.CONFIG_MAP, needed.config_map)
    return mounted_object(entries(template, "spec", "volumes"), needed.volume) == wanted


def _paths(needed: GuardedStatefulSet, template: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the fields of the pod's spec that a KRaft template sets, as ``managedFields`` spells them."""
    kafka = ("f:containers", f'k:{{"name":"{needed.container}"}}')
    for variable in needed.variables:
        yield (*kafka, "f:env", f'k:{{"name":"{variable.name}"}}', "f:value")
    if needed.issued_secret:
        for mount in _mounts_of(needed.issued_secret, template, _container(needed.container, template))[:1]:
            yield (*kafka, "f:volumeMounts", f'k:{{"mountPath":"{mount["mountPath"]}"}}')
            yield "f:volumes", f'k:{{"name":"{mount["name"]}"}}', "f:secret", "f:secretName"
    if needed.volume:
        reference = ("f:secret", "f:secretName") if needed.secret else ("f:configMap", "f:name")
        yield "f:volumes", f'k:{{"name":"{needed.volume}"}}', *reference


def _owns(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    node: Any = fields
    for step in ("f:spec", "f:template", "f:spec", *path):
        if not isinstance(node, Mapping):
            return False
        node = node.get(step)
    return node is not None


def _pod_annotations(ours: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation of the live template. With it, a tool that replaces the whole template restarts no pod."""
    return {ANNOTATION_CONFIGURATION: ours["spec"]["template"]["metadata"]["annotations"][ANNOTATION_CONFIGURATION]}


def _kustomize_patch(facts: BrokerFacts, name: str, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overlay as a patch that names every variable, so that kustomize keeps the order of the live container.

    Notes
    -----
    kustomize puts the entries of a patch first, in the order of the patch, and merges those of one name.
    Another order restarts every pod.
    """
    pod = ours["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    by_name = {entry["name"]: entry for entry in container["env"]}
    order = dict.fromkeys([*facts.variables, *by_name])
    container = {**container, "env": [by_name.get(variable, {"name": variable}) for variable in order]}
    template = {**ours["spec"]["template"], "spec": {**pod, "containers": [container]}}
    return {**ours, "metadata": {"name": name}, "spec": {"template": template}}


def _bitnami_values(spec: MigrationSpec, facts: BrokerFacts, ours: Mapping[str, Any]) -> dict[str, Any]:
    annotations = _pod_annotations(ours)
    broker: dict[str, Any] = {"podAnnotations": dict(annotations)}
    # Charts up to 23 take annotations from the top level, and later ones from ``broker``.
    of_all: dict[str, Any] = {"podAnnotations": annotations}
    # The chart mounts no Secret as server.properties, so there is no value for one.
    pod = ours["spec"]["template"]["spec"]
    for volume in pod.get("volumes", []):
        if "configMap" in volume:
            broker["existingConfigmap"] = volume["configMap"]["name"]
        elif volume["name"] == ISSUED_VOLUME:
            of_all |= {"extraVolumes": [volume], "extraVolumeMounts": pod["containers"][0]["volumeMounts"]}
    # The chart renders no variable that writes to ZooKeeper where it has none.
    variables = (
        environment(spec, facts, BrokerMode.KRAFT).items() - dict.fromkeys(facts.zookeeper_writers, "false").items()
    )
    of_chart = _rendered_by_bitnami(spec, facts, dict(variables))
    entries = [{"name": name, "value": value} for name, value in sorted(variables) if name not in of_chart]
    values: dict[str, Any] = {"broker": broker, **of_all, "extraEnvVars": entries}
    for value in of_chart.values():
        values |= value
    if (new := facts.image_in(_final_mode(facts))) is not None:
        registry, repository, tag = _parts_of(new.image)
        values = {"image": {"registry": registry, "repository": repository, **tag}, **values}
    if spec.brokers.file is None:
        return values
    # Only a release without ZooKeeper leaves out KAFKA_ZOOKEEPER_BOOTSTRAP_SCRAM_USERS,
    # with which no broker starts on KRaft.
    voters = broker_settings(spec, facts, BrokerMode.KRAFT)["controller.quorum.voters"]
    return values | {
        "kraft": {"enabled": True, "clusterId": facts.cluster_id, "controllerQuorumVoters": voters},
        "controller": {"replicaCount": 0},
        **_WITHOUT_ZOOKEEPER,
        "listeners": {"controller": {"protocol": "PLAINTEXT"}},
    }


def _rendered_by_bitnami(
    spec: MigrationSpec, facts: BrokerFacts, variables: Mapping[str, str]
) -> dict[str, Mapping[str, Any]]:
    """Return the chart's own values for the variables that charts up to 23 render themselves, by the variable.

    Helm cannot patch a list that has two entries of one name (``$setElementOrder``).
    """
    if spec.brokers.file is not None or spec.brokers.env_prefix != PREFIX:
        return {}
    protocol_map = f"{PREFIX}LISTENER_SECURITY_PROTOCOL_MAP"
    of_chart: dict[str, Mapping[str, Any]] = {
        protocol_map: {"listenerSecurityProtocolMap": variables.get(protocol_map)},
        f"{PREFIX}ZOOKEEPER_CONNECT": _WITHOUT_ZOOKEEPER,
    }
    return {name: value for name, value in of_chart.items() if name in facts.given and name in variables}


def _parts_of(image: str) -> tuple[str, str, dict[str, str]]:
    """Return registry and repository of an image, and its tag or digest as the Bitnami chart takes them."""
    name, _, digest = image.partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        path = name
        tag = ""
    first, slash, rest = path.partition("/")
    is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
    registry, repository = (first, rest) if is_host else ("docker.io", path)
    return registry, repository, {"digest": digest} if digest else {"tag": tag or "latest"}


def _confluent_values(spec: MigrationSpec, facts: BrokerFacts, ours: Mapping[str, Any]) -> dict[str, Any]:
    settings = broker_settings(spec, facts, BrokerMode.KRAFT)
    named = {variable_of(s, _CONFLUENT_PREFIX) for s in settings}
    others = {k: v for k, v in sorted(environment(spec, facts, BrokerMode.KRAFT).items()) if k not in named}
    values = {"podAnnotations": _pod_annotations(ours), "configurationOverrides": settings, "customEnv": others}
    new = facts.image_in(_final_mode(facts))
    if new is None:
        return values
    repository, _, tag = new.image.rpartition(":")
    image = {"image": repository, "imageTag": tag} if repository and "/" not in tag else {"image": tag}
    return {**image, **values}


def _values(chart: str, values: Mapping[str, Any]) -> str:
    return f"# Values for {chart}.\n{yaml.safe_dump(dict(values), sort_keys=False)}"
