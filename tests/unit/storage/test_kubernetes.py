from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client import Configuration
from tests.unit.storage.servers import HttpServer, http_server

from kraftbridge.exceptions import (
    ActionError,
    ActionRefusedError,
    ConflictError,
    EvictionBlockedError,
    ObservationError,
    TooLargeError,
)
from kraftbridge.models.decision import Event, EventReason, EventType
from kraftbridge.models.survey import Right
from kraftbridge.storage import kubernetes as module
from kraftbridge.storage.kubernetes import KubernetesStore, KubernetesTransport, load_configuration, path_of

STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "kafka", "namespace": "shop"}}


def status(
    code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None
) -> tuple[int, dict[str, Any]]:
    """A ``metav1.Status`` as the API server words it."""
    details = {} if causes is None else {"details": {"causes": causes}}
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return code, body | {"message": message} | details


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as running:
        yield running


@pytest.fixture
def store(server: HttpServer) -> Iterator[KubernetesStore]:
    configuration = Configuration()
    configuration.host = server.url
    configuration.api_key = {"authorization": "Bearer token-1"}
    found = KubernetesStore(KubernetesTransport(configuration))
    yield found
    found.close()


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (("v1", "Pod", "shop", "kafka-0"), "/api/v1/namespaces/shop/pods/kafka-0"),
        (("v1", "Pod", "shop", "kafka-0", "eviction"), "/api/v1/namespaces/shop/pods/kafka-0/eviction"),
        (("v1", "Namespace", None, "shop"), "/api/v1/namespaces/shop"),
        (("v1", "Pod", None), "/api/v1/pods"),
        (("apps/v1", "StatefulSet", "shop", "kafka"), "/apis/apps/v1/namespaces/shop/statefulsets/kafka"),
        (
            ("networking.k8s.io/v1", "NetworkPolicy", "a/b", "c?d"),
            "/apis/networking.k8s.io/v1/namespaces/a%2Fb/networkpolicies/c%3Fd",
        ),
        (
            ("sparkoperator.k8s.io/v1beta2", "SparkApplication", "shop"),
            "/apis/sparkoperator.k8s.io/v1beta2/namespaces/shop/sparkapplications",
        ),
    ],
)
def test_addresses(place: tuple[Any, ...], path: str) -> None:
    assert path_of(*place) == path


def test_get_returns_the_object_and_shows_the_token(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda _: (200, STATEFUL_SET)
    assert store.get("apps/v1", "StatefulSet", "shop", "kafka") == STATEFUL_SET
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", "/apis/apps/v1/namespaces/shop/statefulsets/kafka")
    assert request.headers["authorization"] == "Bearer token-1"


def test_get_of_nothing_is_none(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda _: status(404, "NotFound", 'statefulsets.apps "kafka" not found')
    assert store.get("apps/v1", "StatefulSet", "shop", "kafka") is None


@pytest.mark.parametrize("code", [401, 403, 429, 500, 503])
def test_a_refused_read_is_an_observation_error(store: KubernetesStore, server: HttpServer, code: int) -> None:
    server.respond = lambda _: status(code, "X", "words of the server")
    with pytest.raises(ObservationError, match=rf"StatefulSet shop/kafka: GET answered {code}: words of the server"):
        store.get("apps/v1", "StatefulSet", "shop", "kafka")


def test_an_api_server_that_is_away_is_an_observation_or_action_error() -> None:
    with http_server() as gone:
        configuration = Configuration()
        configuration.host = gone.url
    store = KubernetesStore(KubernetesTransport(configuration))
    with pytest.raises(ObservationError, match=r"(?s)Pod shop/kafka-0: GET failed after .*refused"):
        store.get("v1", "Pod", "shop", "kafka-0")
    with pytest.raises(ActionError, match=r"apply of StatefulSet shop/kafka failed after .*refused"):
        store.apply(STATEFUL_SET)


def test_list_follows_pages_and_fills_in_kinds(store: KubernetesStore, server: HttpServer) -> None:
    pages = {
        None: {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "kafka-0"}}]},
        "more": {"metadata": {}, "items": [{"metadata": {"name": "kafka-1"}}]},
    }
    server.respond = lambda request: (200, pages[request.query.get("continue")])
    found = store.list("v1", "Pod", "shop", "app=kafka")
    assert [(p["kind"], p["apiVersion"], p["metadata"]["name"]) for p in found] == [
        ("Pod", "v1", "kafka-0"),
        ("Pod", "v1", "kafka-1"),
    ]
    assert [r.query["labelSelector"] for r in server.requests] == ["app=kafka"] * 2


@pytest.mark.parametrize(
    "answer", [status(404, "NotFound", "no such resource"), (200, {"kind": "Pod"}), (200, "<html>")]
)
def test_a_list_that_is_none_is_never_empty(
    store: KubernetesStore, server: HttpServer, answer: tuple[int, Any]
) -> None:
    server.respond = lambda _: answer
    with pytest.raises(ObservationError, match="Pod objects in namespace shop"):
        store.list("v1", "Pod", "shop")


def test_apply_is_a_server_side_apply_of_ours(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda request: (200, request.body)
    assert store.apply(STATEFUL_SET, force=True) == STATEFUL_SET
    (request,) = server.requests
    assert (request.method, request.path) == ("PATCH", "/apis/apps/v1/namespaces/shop/statefulsets/kafka")
    assert request.query == {"fieldManager": "kraftbridge", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"


def test_an_apply_of_what_is_new_tells_whether_it_was(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda request: (201, request.body)
    assert store.apply_new(STATEFUL_SET, force=True) == STATEFUL_SET
    server.respond = lambda request: (200, request.body)
    with pytest.raises(ConflictError, match="StatefulSet shop/kafka exists already"):
        store.apply_new(STATEFUL_SET, force=True)


def test_apply_lists_fields_that_others_own(store: KubernetesStore, server: HttpServer) -> None:
    field = '.spec.template.spec.containers[name="kafka"].env[name="X"].value'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "helm"', "field": field}
    server.respond = lambda _: status(409, "Conflict", "Apply failed with 1 conflict", [cause])
    with pytest.raises(ConflictError) as caught:
        store.apply(STATEFUL_SET)
    assert f'1 field(s) of other managers: {field}: conflict with "helm"' in str(caught.value)


@pytest.mark.parametrize(
    ("code", "error"),
    [(409, ConflictError), (400, ActionRefusedError), (403, ActionRefusedError), (422, ActionRefusedError)],
)
def test_refusals_are_told_apart(store: KubernetesStore, server: HttpServer, code: int, error: type[Exception]) -> None:
    server.respond = lambda _: status(code, "X", "because")
    with pytest.raises(error, match=f"create of StatefulSet shop/kafka answered {code}: because"):
        store.create(STATEFUL_SET)


@pytest.mark.parametrize("code", [404, 429, 500, 503])
def test_troubles_may_pass(store: KubernetesStore, server: HttpServer, code: int) -> None:
    server.respond = lambda _: status(code, "X", "because")
    with pytest.raises(ActionError) as caught:
        store.create(STATEFUL_SET)
    assert type(caught.value) is ActionError


def test_patches_carry_their_type_manager_and_version(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda request: (200, request.body)
    patch = {"metadata": {"annotations": {"a": "b"}}}
    store.merge_patch("apps/v1", "StatefulSet", "shop", "kafka", patch, resource_version="7", subresource="scale")
    store.strategic_patch("apps/v1", "StatefulSet", "shop", "kafka", patch, field_manager="helm")
    merge, strategic = server.requests
    assert merge.path.endswith("/statefulsets/kafka/scale")
    assert merge.headers["Content-Type"] == "application/merge-patch+json"
    assert merge.body == {"metadata": {"annotations": {"a": "b"}, "resourceVersion": "7"}}
    assert merge.query == {"fieldManager": "kraftbridge"}
    assert strategic.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert strategic.body == patch
    assert strategic.query == {"fieldManager": "helm"}
    assert patch == {"metadata": {"annotations": {"a": "b"}}}, "the caller's patch stays as it is"


def test_status_is_replaced_whole_at_one_version(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda _: (200, {"metadata": {"resourceVersion": "8"}})
    place = ("kraftbridge.dev/v1alpha1", "KafkaMigration", "shop", "kafka")
    assert store.replace_status(*place, {"phase": "Preflight"}, "7")["metadata"]["resourceVersion"] == "8"
    (request,) = server.requests
    assert request.path == "/apis/kraftbridge.dev/v1alpha1/namespaces/shop/kafkamigrations/kafka/status"
    assert request.headers["Content-Type"] == "application/json-patch+json"
    assert request.body == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/status", "value": {"phase": "Preflight"}},
    ]
    server.respond = lambda _: status(409, "Conflict", "the object has been modified")
    with pytest.raises(ConflictError, match="status update of KafkaMigration shop/kafka"):
        store.replace_status(*place, {"phase": "Preflight"}, "7")


def test_delete_carries_its_preconditions(store: KubernetesStore, server: HttpServer) -> None:
    store.delete("batch/v1", "Job", "shop", "verify", uid="u-1", grace_seconds=0)
    (request,) = server.requests
    assert request.method == "DELETE"
    assert request.body["preconditions"] == {"uid": "u-1"}
    assert request.body["propagationPolicy"] == "Background"
    assert request.body["gracePeriodSeconds"] == 0
    store.delete("batch/v1", "Job", "shop", "verify", resource_version="7")
    assert server.requests[-1].body["preconditions"] == {"resourceVersion": "7"}


def pod_api(post: tuple[int, object], *pods: dict[str, Any] | None) -> Any:
    """Answer each GET of the pod with the next of ``pods`` (the last for ever), everything else with ``post``."""
    left = list(pods)

    def respond(request: Any) -> tuple[int, object]:
        if request.method != "GET":
            return post
        pod = left.pop(0) if len(left) > 1 else left[0]
        return (404, {}) if pod is None else (200, pod)

    return respond


def pod(uid: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": "kafka-0", "uid": uid, **metadata}}


UID_CONFLICT = status(409, "Conflict", "Precondition failed: UID in precondition: u-1, UID in object meta: u-2")


@pytest.mark.parametrize(
    "answer",
    [pod_api(UID_CONFLICT, None), pod_api(UID_CONFLICT, pod("u-2")), lambda _: status(404, "NotFound", "gone")],
)
def test_a_delete_of_what_is_gone_is_done(store: KubernetesStore, server: HttpServer, answer: Any) -> None:
    server.respond = answer
    store.delete("v1", "Pod", "shop", "kafka-0", uid="u-1")


@pytest.mark.parametrize("present", [None, pod("u-2"), pod("u-1", deletionTimestamp="2026-01-01T00:00:00Z")])
def test_no_eviction_is_asked_for_a_pod_that_is_gone_or_going(
    store: KubernetesStore, server: HttpServer, present: dict[str, Any] | None
) -> None:
    server.respond = pod_api((500, {}), present)
    store.evict("shop", "kafka-0", "u-1", 60)
    assert [r.method for r in server.requests] == ["GET"], "the server charges a budget even for a wrong UID"


@pytest.mark.parametrize(
    ("post", "after"), [(UID_CONFLICT, pod("u-2")), (UID_CONFLICT, None), (status(404, "NotFound", "gone"), None)]
)
def test_an_eviction_of_a_pod_that_goes_meanwhile_is_done(
    store: KubernetesStore, server: HttpServer, post: Any, after: dict[str, Any] | None
) -> None:
    server.respond = pod_api(post, pod("u-1"), after)
    store.evict("shop", "kafka-0", "u-1", 60)
    assert "POST" in [r.method for r in server.requests]


def test_a_conflict_over_the_same_pod_is_not_done(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = pod_api(status(409, "Conflict", "try again"), pod("u-1"))
    with pytest.raises(ConflictError, match="eviction of Pod shop/kafka-0 answered 409: try again"):
        store.evict("shop", "kafka-0", "u-1", 60)


def test_a_conflict_whose_pod_cannot_be_seen_is_not_done(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda r: status(500, "X", "etcd") if r.method == "GET" else status(409, "Conflict", "try again")
    with pytest.raises(ConflictError, match="etcd"):
        store.delete("v1", "Pod", "shop", "kafka-0", uid="u-1")
    with pytest.raises(ActionError, match=r"eviction of Pod shop/kafka-0 was not tried: .*etcd"):
        store.evict("shop", "kafka-0", "u-1", 60)


def test_eviction_names_the_pod_by_uid_and_waits_for_it(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = pod_api((201, {}), pod("u-1"))
    store.evict("shop", "kafka-0", "u-1", 300)
    _, request = server.requests
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/shop/pods/kafka-0/eviction")
    assert request.body["apiVersion"] == "policy/v1"
    assert request.body["metadata"] == {"name": "kafka-0", "namespace": "shop"}
    assert request.body["deleteOptions"] == {"preconditions": {"uid": "u-1"}, "gracePeriodSeconds": 300}


@pytest.mark.parametrize(("pods_own", "grace"), [(1800, 1800), (30, 300), (None, 300)])
def test_an_eviction_never_shortens_the_grace_period_of_a_pod(
    store: KubernetesStore, server: HttpServer, pods_own: int | None, grace: int
) -> None:
    spec = {} if pods_own is None else {"terminationGracePeriodSeconds": pods_own}
    server.respond = pod_api((201, {}), {**pod("u-1"), "spec": spec})
    store.evict("shop", "kafka-0", "u-1", 300)
    assert server.requests[-1].body["deleteOptions"]["gracePeriodSeconds"] == grace


@pytest.mark.parametrize(
    "answer",
    [status(413, "RequestEntityTooLarge", "limit is 3145728"), status(500, "", "etcdserver: request is too large")],
)
def test_an_object_that_is_too_large_is_told_apart(store: KubernetesStore, server: HttpServer, answer: Any) -> None:
    server.respond = lambda _: answer
    with pytest.raises(TooLargeError, match="status update of KafkaMigration shop/demo answered"):
        store.replace_status("kraftbridge.dev/v1alpha1", "KafkaMigration", "shop", "demo", {}, "7")


def test_a_budget_blocks_an_eviction_in_its_own_words(store: KubernetesStore, server: HttpServer) -> None:
    words = "The disruption budget kafka needs 2 healthy pods and has 2 currently"
    causes = [{"reason": "DisruptionBudget", "message": words}]
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    server.respond = pod_api(status(429, "TooManyRequests", message, causes), pod("u-1"))
    with pytest.raises(EvictionBlockedError, match=words):
        store.evict("shop", "kafka-0", "u-1", 300)


def test_throttling_is_no_budget(store: KubernetesStore, server: HttpServer) -> None:
    words = "Too many requests, please try again later."
    server.respond = pod_api(status(429, "TooManyRequests", words), pod("u-1"))
    with pytest.raises(ActionError) as caught:
        store.evict("shop", "kafka-0", "u-1", 300)
    assert type(caught.value) is ActionError


def test_served_kinds_are_remembered_for_a_while(
    store: KubernetesStore, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = [
        {"name": "sparkapplications", "kind": "SparkApplication"},
        {"name": "sparkapplications/status", "kind": "Status"},
    ]
    served = {"/apis/sparkoperator.k8s.io/v1beta2": (200, {"resources": resources})}
    server.respond = lambda request: served.get(request.path, (404, {}))
    clock = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    group = "sparkoperator.k8s.io/v1beta2"
    assert store.serves(group, "SparkApplication")
    assert not store.serves(group, "Status")
    assert store.serves(group, "SparkApplication")
    assert len(server.requests) == 1
    clock[0] += 61
    served.clear()
    assert not store.serves(group, "SparkApplication")
    clock[0] += 11
    served["/apis/sparkoperator.k8s.io/v1beta2"] = (200, {"resources": resources})
    assert store.serves(group, "SparkApplication"), "a no is remembered for ten seconds only"


def test_a_discovery_that_fails_is_no_answer(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda _: status(503, "ServiceUnavailable", "aggregated API is away")
    with pytest.raises(ObservationError, match="API metrics"):
        store.serves("metrics.k8s.io/v1", "X")


def test_logs_are_bounded(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda _: (200, "one\ntwo\n")
    assert store.pod_logs("shop", "kafka-0", "kafka", 2, previous=True) == "one\ntwo\n"
    (request,) = server.requests
    assert request.path == "/api/v1/namespaces/shop/pods/kafka-0/log"
    assert request.query == {"container": "kafka", "tailLines": "2", "limitBytes": "262144", "previous": "true"}


def test_events_are_cut_to_the_limits_of_the_api(store: KubernetesStore, server: HttpServer) -> None:
    migration = {
        "apiVersion": "kraftbridge.dev/v1alpha1",
        "kind": "KafkaMigration",
        "metadata": {"name": "k" * 253, "namespace": "shop", "uid": "u-1"},
    }
    store.create_event(migration, Event(EventType.WARNING, EventReason.STALLED, "ä" * 2000))
    (request,) = server.requests
    assert request.path == "/apis/events.k8s.io/v1/namespaces/shop/events"
    body = request.body
    assert len(body["note"].encode()) <= 1024
    assert body["note"].startswith("ä" * 500)
    assert len(body["metadata"]["name"]) <= 253
    assert (body["type"], body["reason"]) == ("Warning", "Stalled")
    assert body["regarding"]["uid"] == "u-1"


def test_without_cluster_or_kubeconfig_there_is_an_error(tmp_path: Any) -> None:
    with pytest.raises(ObservationError, match="Kubernetes configuration"):
        load_configuration(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("answer", "allowed"), [({"allowed": True}, True), ({"allowed": False, "denied": True}, False), ({}, False)]
)
def test_our_own_rights_are_asked_of_the_api_server(
    store: KubernetesStore, server: HttpServer, answer: dict[str, Any], allowed: bool
) -> None:
    server.respond = lambda _: (201, {"status": answer})
    assert store.may(Right("create", "", "pods", "eviction"), "shop") is allowed
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert request.body["spec"] == {
        "resourceAttributes": {"verb": "create", "resource": "pods", "subresource": "eviction", "namespace": "shop"}
    }
    store.may(Right("create", "", "pods", "eviction"), "shop")
    assert len(server.requests) == (1 if allowed else 2), "only a yes is remembered"
    store.may(Right("create", "", "pods", "eviction"), "market")
    assert server.requests[-1].body["spec"]["resourceAttributes"]["namespace"] == "market"


def test_a_right_that_could_not_be_asked_for_is_unknown(store: KubernetesStore, server: HttpServer) -> None:
    server.respond = lambda _: status(403, "Forbidden", "no")
    with pytest.raises(ObservationError, match=r"right to list nodes: SelfSubjectAccessReview answered 403"):
        store.may(Right("list", "", "nodes"), None)
