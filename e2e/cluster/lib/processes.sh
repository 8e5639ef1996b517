# The cluster's daemons: each has a pid file and a log named after it, in the folder of its node.
# shellcheck shell=bash
# shellcheck disable=SC2034
DAEMONS=(etcd containerd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy networkpolicies)
NODE_DAEMONS=(containerd kubelet kube-proxy networkpolicies) # what every node has; the first one has all of them

# pid_of NAME: prints its pid if it runs. A recycled pid is never trusted: the name has to fit, every daemon has our state
# directory in its command line, and those of further nodes have their node's number in their environment.
pid_of() {
  local pid
  pid=$(cat "$PIDS/$1.pid" 2>/dev/null) || return 1
  [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "${1:0:15}" ]] || return 1
  grep -qF "$STATE" "/proc/$pid/cmdline" 2>/dev/null || return 1
  [[ $(node_of_process "$pid") == "$NODE" ]] || return 1
  echo "$pid"
}

node_of_process() {
  local node
  node=$(sed -zn 's/^KRAFTBRIDGE_NODE=//p' "/proc/$1/environ" 2>/dev/null | tr -d '\0')
  echo "${node:-1}"
}

running() { pid_of "$1" >/dev/null; }

# start NAME ARGUMENTS...: unless it runs. The pid is written by the child itself before it becomes
# the daemon, so that a caller killed in between leaves no daemon that nobody knows. It inherits no other descriptor:
# a lock under which the caller ran (flock FILE cluster up) would be held for as long as the daemon lives.
start() {
  local name=$1 descriptor
  shift
  [[ ! -e $PIDS/$name.stopping ]] || stop "$name"
  running "$name" && return
  (
    echo "$BASHPID" >"$PIDS/$name.pid"
    for descriptor in "/proc/$BASHPID/fd"/*; do
      ((${descriptor##*/} <= 2)) || eval "exec ${descriptor##*/}>&-"
    done
    ((NODE == 1)) || export KRAFTBRIDGE_NODE=$NODE
    exec setsid nohup "${WITHIN[@]}" "$name" "$@"
  ) </dev/null >>"$LOGS/$name.log" 2>&1 &
}

# stop NAME [SECONDS]. The mark tells a later start that a caller was killed in here: what runs may be about to end.
stop() {
  local name=$1 deadline=$((SECONDS + ${2:-10})) pid
  if pid=$(pid_of "$name"); then
    touch "$PIDS/$name.stopping"
    kill "$pid" 2>/dev/null || true
    while running "$name" && ((SECONDS < deadline)); do sleep 0.1; done
    ! running "$name" || kill -9 "$pid" 2>/dev/null || true
    while running "$name" && ((SECONDS < deadline + 5)); do sleep 0.05; done
  fi
  rm -f "$PIDS/$name.pid" "$PIDS/$name.stopping"
}

start_etcd() {
  start etcd --name kraftbridge --data-dir "$STATE/etcd" --unsafe-no-fsync \
    --listen-client-urls "$ETCD_URL" --advertise-client-urls "$ETCD_URL" \
    --listen-peer-urls "$ETCD_PEER_URL" --initial-advertise-peer-urls "$ETCD_PEER_URL" \
    --initial-cluster "kraftbridge=$ETCD_PEER_URL"
}

start_containerd() { start containerd --config "$NODE_STATE/containerd/config.toml"; }

# --kubelet-preferred-address-types: by default it would look up the node's name, which no resolver knows.
start_kube_apiserver() {
  start kube-apiserver "$@" --etcd-servers="$ETCD_URL" --bind-address="$NODE_IP" --secure-port="$API_PORT" --advertise-address="$NODE_IP" \
    --service-cluster-ip-range="$SERVICE_CIDR" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --allow-privileged=true --client-ca-file="$PKI/ca.crt" \
    --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-client-certificate="$PKI/apiserver-kubelet.crt" \
    --kubelet-client-key="$PKI/apiserver-kubelet.key" --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc.$CLUSTER_DOMAIN \
    --service-account-key-file="$PKI/sa.pub" --service-account-signing-key-file="$PKI/sa.key"
}

start_kube_controller_manager() {
  start kube-controller-manager "$@" --kubeconfig="$PKI/controller-manager.kubeconfig" --bind-address=127.0.0.1 \
    --leader-elect=false --use-service-account-credentials --service-account-private-key-file="$PKI/sa.key" \
    --root-ca-file="$PKI/ca.crt" --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key"
}

start_kube_scheduler() {
  start kube-scheduler --kubeconfig="$PKI/scheduler.kubeconfig" --bind-address=127.0.0.1 --leader-elect=false
}

# Zones are there to be told apart: a single node has none.
start_kubelet() {
  local labels=()
  (($(node_count) == 1)) || labels=("--node-labels=topology.kubernetes.io/zone=zone-$NODE")
  start kubelet --config="$NODE_STATE/kubelet.yaml" --kubeconfig="$PKI/$KUBELET.kubeconfig" --root-dir="$NODE_STATE/kubelet" \
    --hostname-override="$NODE_NAME" --node-ip="$NODE_IP" "${labels[@]}"
}

start_kube_proxy() {
  running kube-proxy || delete_proxy_tables
  start kube-proxy --config="$NODE_STATE/proxy.yaml"
}

# Enforces NetworkPolicies. Its table outlives it: a stopped or killed enforcer opens nothing.
start_networkpolicies() { start networkpolicies --kubeconfig="$PKI/networkpolicies.kubeconfig"; }
