# What the proofs share: a web server on every replica of a StatefulSet, and ways to ask it.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used by the proofs
eval "$("$HERE/cluster" env)"
NAMESPACE=kraftbridge-prove
checks=0

k() { kubectl --namespace "$NAMESPACE" "$@"; }
passed() {
  checks=$((checks + 1))
  printf '%(%H:%M:%S)T ok   %s\n' -1 "$*"
}
failed() {
  printf 'FAILED %s\n' "$*" >&2
  exit 1
}
equal() { # WHAT GOT WANTED
  [[ $2 == "$3" ]] || failed "$1: got '$2', wanted '$3'"
  passed "$1"
}
eventually() { # SECONDS COMMAND...: until it succeeds; what follows tells why it did not
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1 || ((SECONDS >= deadline)); do sleep 0.2; done
}
refused() { # WHAT EXPECTED_WORDS COMMAND...
  local what=$1 words=$2 output
  shift 2
  if output=$("$@" 2>&1); then failed "$what: was accepted: $output"; fi
  [[ $output == *"$words"* ]] || failed "$what: refused for another reason: $output"
  passed "$what"
}
evict() {
  kubectl create --raw "/api/v1/namespaces/$NAMESPACE/pods/$1/eviction" -f - \
    <<<"{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {\"name\": \"$1\"}}"
}
create_namespace() {
  "$HERE/cluster" has-image localhost/kraftbridge-base:bookworm || failed "an image is missing; run: e2e/images/build base"
  kubectl create namespace "$NAMESPACE" >/dev/null
}
delete_namespace() { kubectl delete namespace "$NAMESPACE" --ignore-not-found --wait >/dev/null 2>&1 || true; }
volumes() { kubectl get pv -o jsonpath='{.items[*].spec.claimRef.namespace}' | grep -c "$NAMESPACE" || true; }
no_volumes() { [[ $(volumes) == 0 ]]; }

# create_web [AFFINITY]: three web servers with a volume each, behind a headless Service and one with an address.
create_web() {
  local affinity=${1:-"{}"}
  k create -f - >/dev/null <<END
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-vip}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 3
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity: $affinity
      initContainers:   # a web server from one image; bash and a libc that resolves names from the other
      - name: tools
        image: localhost/kraftbridge-busybox:1
        imagePullPolicy: Never
        command: [cp, /bin/busybox, /tools/]
        volumeMounts: [{name: tools, mountPath: /tools}]
      volumes: [{name: tools, emptyDir: {}}]
      containers:
      - name: web
        image: localhost/kraftbridge-base:bookworm
        imagePullPolicy: Never
        command: [sh, -c, 'hostname >/data/index.html; echo "\$REVISION" >>/data/boots; exec /tools/busybox httpd -f -p 8080 -h /data']
        env: [{name: REVISION, value: v1}]
        resources: {requests: {cpu: 5m, memory: 8Mi}}
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}, {name: tools, mountPath: /tools}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 8Mi}}}
END
}

# The last line of what HOST:PORT answers, asked for from inside a pod or here.
request='answer() { exec 3<>"/dev/tcp/$1/$2" && printf "GET / HTTP/1.0\r\n\r\n" >&3 && tail -n1 <&3; }'
from_pod() { k exec "$1" -c web -- bash -c "$request; $2"; }
backends() { from_pod "${1:-web-0}" "for i in {1..40}; do answer $address 80; done" | sort -u | wc -l; }
all_backends() { [[ $(backends "$@") == 3 ]]; }

reaches() { from_pod "$1" "timeout 2 bash -c 'exec 3<>/dev/tcp/$2/$3'" 2>/dev/null; } # POD ADDRESS PORT
cannot_reach() { ! reaches "$@"; }
open_way() { # WHAT POD ADDRESS PORT
  eventually 10 reaches "${@:2}"
  reaches "${@:2}" || failed "$1: $2 cannot reach $3 port $4"
  passed "$1"
}
closed_way() { # WHAT POD ADDRESS PORT: asked for twice, since a way closes a moment after the policy came
  eventually 10 cannot_reach "${@:2}"
  ! reaches "${@:2}" || failed "$1: $2 reaches $3 port $4"
  passed "$1"
}
policy() { # NAME POD SPEC
  k apply -f - >/dev/null <<END
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: $1},
 spec: {podSelector: {matchLabels: {statefulset.kubernetes.io/pod-name: $2}}, $3}}
END
}
address_of() { k get pod "$1" -o jsonpath='{.status.podIP}'; }
