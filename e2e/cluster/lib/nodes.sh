# Further nodes beside the first one, which is the machine itself.
# Each is a network, a mount and a UTS namespace, held by one process that does nothing (pause). It ends with that process:
# mounts, interfaces, routes and nftables tables of a namespace go with it.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used by the other files
MAXIMUM_NODES=3
# The nodes' own network: the machine is its first address.
NODES_BRIDGE=kraftbridge1
NODES_GATEWAY=10.244.255.1
# Paths that containerd, the CNI plugins and the kubelet have built in: each node has its own. The last one is mounted last.
PATHS_OF_A_NODE=(/run/containerd /var/lib/cni /var/log/containers /var/lib/kubelet)

# What runs a program within the node: nothing on the first one. Read by start and in_node.
WITHIN=()

# How many nodes the cluster has: written by its first `up`.
node_count() { cat "$STATE/node-count" 2>/dev/null || echo 1; }
further_nodes() { seq 2 "$(node_count)"; }

# use_node NUMBER: what follows in this shell is about that node.
use_node() {
  NODE=$1
  ((NODE > 1)) || return 0
  NODE_NAME=$NODE_NAME-$NODE
  NODE_IP=${NODES_GATEWAY%.*}.$NODE
  POD_CIDR=$(pod_cidr "$NODE")
  POD_GATEWAY=${POD_CIDR%.0/24}.1
  KUBELET=kubelet-$NODE
  CGROUP=$CGROUP/node-$NODE
  NODE_STATE=$STATE/nodes/$NODE
  LOGS=$NODE_STATE/log
  PIDS=$NODE_STATE/run
  CONTAINERD_SOCKET=$NODE_STATE/containerd/containerd.sock
  LINK=kraftbridge-n$NODE
  enter_namespaces
}

pod_cidr() { echo "10.244.$1.0/24"; }

# on_node NUMBER COMMAND...: with that node's names and folders.
on_node() {
  (
    use_node "$1"
    shift
    "$@"
  )
}

# on_further_nodes COMMAND...
on_further_nodes() {
  local node
  for node in $(further_nodes); do on_node "$node" "$@"; done
}

# on_running_nodes COMMAND...: the first node, and each other one whose containerd runs; until it fails on one.
on_running_nodes() {
  local node
  "$@" || return
  for node in $(further_nodes); do
    if on_node "$node" running containerd; then
      on_node "$node" "$@" || return
    fi
  done
}

# Without a holder nothing can be run within the node, rather than on the machine.
enter_namespaces() {
  local holder
  WITHIN=(false)
  ! holder=$(pid_of pause) || WITHIN=(nsenter --target "$holder" --net --mount --uts --)
}

in_node() { "${WITHIN[@]}" "$@"; }

# keep_node_count [NUMBER]: without a number it is that of the running cluster, or one.
keep_node_count() {
  local wanted=${1:-}
  if [[ ! -s $STATE/node-count ]]; then
    echo "${wanted:-1}" >"$STATE/node-count.new"
    mv "$STATE/node-count.new" "$STATE/node-count"
  fi
  [[ -z $wanted || $wanted == "$(node_count)" ]] ||
    die "the cluster has $(node_count) node(s), not $wanted; run first: $CLUSTER_SRC/cluster down"
}

# ------------------------------------------------------------------ namespaces, mounts, network
# A node that has lost its holder is like a machine that was switched off: what still runs of it is in namespaces that nobody can enter.
start_namespaces() {
  if ! running pause; then
    kill_node
    mkdir -p "$LOGS" "$PIDS"
    WITHIN=(unshare --net --mount --uts --)
    start pause "$NODE_STATE"
    wait_for 10 "the namespaces of $NODE_NAME" running pause
    enter_namespaces
  fi
  in_node hostname "$NODE_NAME"
  mount_paths_of_node
  set_up_node_network
}

mount_paths_of_node() {
  local path last=${PATHS_OF_A_NODE[-1]} own=$NODE_STATE/host
  ! in_node mountpoint -q "$last" || return 0 # the others are there as well then
  # A new mount namespace is a copy. What it has of the first node's pods would keep them from being removed.
  mounts_below "$STATE" | while read -r path; do in_node umount --lazy "$path"; done
  # Volumes and hostPaths below that folder: the same path on every node, as on machines that are alike.
  mkdir -p "$NODE_STATE/volumes"
  in_node mount --bind "$NODE_STATE/volumes" "$STATE/volumes"
  for path in "${PATHS_OF_A_NODE[@]}"; do
    mkdir -p "$path" "$own$path"
    in_node mount --bind "$own$path" "$path"
  done
}

# mounts_below FOLDER: the last one first.
mounts_below() { in_node cat /proc/self/mounts | awk -v folder="$1/" 'index($2, folder) == 1 {print $2}' | tac; }

# The machine is the way to everything; the other nodes are on the same bridge.
set_up_node_network() {
  local node
  in_node sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
  in_node ip link set lo up
  # A link whose other end was in a namespace that is gone may be there for a moment longer.
  if ! in_node ip link show eth0 >/dev/null 2>&1; then
    ip link delete "$LINK" 2>/dev/null || true
    ip link add "$LINK" type veth peer name eth0 address "02:6b:72:62:ff:0$NODE" netns "$(pid_of pause)"
  fi
  ip link set "$LINK" master "$NODES_BRIDGE"
  in_node ip address replace "$NODE_IP/24" dev eth0
  in_node ip link set eth0 up
  in_node ip route replace default via "$NODES_GATEWAY"
  set_up_pod_bridge
  for node in $(further_nodes); do
    ((node == NODE)) || in_node ip route replace "$(pod_cidr "$node")" via "${NODES_GATEWAY%.*}.$node"
  done
  set_link
}

# The first node's side: the bridge of the nodes, and the ways to their pods. Its own address stays the same on every way.
set_up_nodes_bridge() {
  local node
  ip link show "$NODES_BRIDGE" >/dev/null 2>&1 || ip link add "$NODES_BRIDGE" address 02:6b:72:62:ff:01 type bridge
  ip address replace "$NODES_GATEWAY/24" dev "$NODES_BRIDGE"
  ip link set "$NODES_BRIDGE" up
  for node in $(further_nodes); do
    ip route replace "$(pod_cidr "$node")" via "${NODES_GATEWAY%.*}.$node" src "$NODE_IP"
  done
}

# A node that was cut off stays so, whatever is started again.
set_link() {
  if [[ -e $NODE_STATE/cut ]]; then ip link set "$LINK" down; else ip link set "$LINK" up; fi
}

# ------------------------------------------------------------------ start and end of a node
# The namespaces, and containerd in them.
prepare_node() {
  [[ ! -e $NODE_STATE/stopped ]] || return 0
  write_configuration
  make_kubelet_pki
  start_namespaces
  make_cgroups
  start_containerd
}

start_node_daemons() {
  [[ ! -e $NODE_STATE/stopped ]] || return 0
  wait_for 30 "containerd of $NODE_NAME" ctr_k8s version
  copy_images
  start_kubelet
  start_kube_proxy
  start_networkpolicies
}

# A node that a caller has cut off or stopped is left so.
await_node() {
  if [[ -e $NODE_STATE/stopped ]]; then
    say "$NODE_NAME stays stopped, until: cluster start-node $NODE_NAME"
  elif [[ -e $NODE_STATE/cut ]]; then
    say "$NODE_NAME stays cut off, until: cluster join-node $NODE_NAME"
  else
    # A node that was away for a moment only is still Ready for the API server, so the kubelet is asked itself.
    wait_for 60 "the kubelet of $NODE_NAME to answer" in_node bash -c "exec 3<>/dev/tcp/127.0.0.1/10248"
    wait_for 60 "the kubelet to register $NODE_NAME" kubectl get node "$NODE_NAME"
    kubectl wait --for=condition=Ready "node/$NODE_NAME" --timeout=90s >/dev/null || die "$NODE_NAME is not Ready; see $LOGS/kubelet.log"
    wait_for 30 "networkpolicies of $NODE_NAME to write its table" in_node nft list table ip "$POLICY_TABLE"
  fi
}

# kill_node: at once, as a machine that lost its power. What a machine keeps in memory goes as well.
kill_node() {
  local name
  for name in "${NODE_DAEMONS[@]}"; do stop "$name" 0; done
  end_pods
  kill_shims
  stop pause 0
  ip link delete "$LINK" 2>/dev/null || true
  remove_cgroups
  rm -rf "$NODE_STATE"/containerd/{state,runc,containerd.sock,containerd.sock.ttrpc} "$NODE_STATE/host/run"
}

# ------------------------------------------------------------------ commands
# use_named_node NAME: of those that can be taken away.
use_named_node() {
  local node names=()
  for node in $(further_nodes); do
    names+=("$NODE_NAME-$node")
    if [[ $1 == "$NODE_NAME-$node" ]]; then
      use_node "$node"
      return
    fi
  done
  ((${#names[@]})) || die "the cluster has one node, which carries the API server; for more: $CLUSTER_SRC/cluster up --nodes $MAXIMUM_NODES"
  die "no node '$1' that can be taken away; there are: ${names[*]} ($NODE_NAME carries the API server)"
}

cut_node() {
  use_named_node "$1"
  touch "$NODE_STATE/cut"
  set_link
  say "$NODE_NAME has no network any more"
}

join_node() {
  use_named_node "$1"
  rm -f "$NODE_STATE/cut"
  set_link
  say "$NODE_NAME has its network again"
}

stop_node() {
  use_named_node "$1"
  touch "$NODE_STATE/stopped"
  kill_node
  say "$NODE_NAME is gone with all its pods; its volumes are kept"
}

start_node() {
  use_named_node "$1"
  rm -f "$NODE_STATE/stopped"
  prepare_node
  start_node_daemons
  await_node
  say "$NODE_NAME runs"
}
