# up, down, restart, status.
# shellcheck shell=bash

require_node_programs() {
  local program
  [[ $(id -u) == 0 ]] || die "must be root: the kubelet mounts, makes cgroups and network namespaces"
  for program in containerd ctr runc nft ip conntrack openssl; do
    command -v "$program" >/dev/null || die "$program is missing; run: $CLUSTER_SRC/cluster prerequisites"
  done
  [[ -x /usr/lib/cni/bridge ]] || die "the CNI plugins are missing; run: $CLUSTER_SRC/cluster prerequisites"
}

# After a reboot nothing of the state fits any more (mounts, sandboxes, unsynced etcd data): begin anew.
discard_state_of_earlier_boot() {
  local boot
  boot=$(cat /proc/sys/kernel/random/boot_id)
  if [[ -d $STATE && $(cat "$STATE/boot_id" 2>/dev/null) != "$boot" ]]; then
    say "the state in $STATE is of an earlier boot or was not complete; clearing it away"
    down
  fi
  mkdir -p "$STATE"
  echo "$boot" >"$STATE/boot_id"
}

# up [--nodes NUMBER]
up() {
  local begin=$SECONDS nodes=
  if (($#)); then
    [[ $1 == --nodes && ${2:-} =~ ^[1-$MAXIMUM_NODES]$ ]] || die "up takes nothing but --nodes with a number from 1 to $MAXIMUM_NODES, not '$*'"
    nodes=$2
  fi
  require_node_programs
  build_node_programs
  build_cluster_images
  discard_state_of_earlier_boot
  keep_node_count "$nodes"
  write_configuration
  make_pki
  set_up_network
  (($(node_count) == 1)) || set_up_nodes_bridge
  make_cgroups
  start_etcd
  start_containerd
  on_further_nodes prepare_node
  start_kube_apiserver
  wait_for 30 containerd ctr_k8s version
  load_images "$ARCHIVES"/kraftbridge-{pause,coredns,local-path-provisioner,busybox}.tar
  wait_for 90 kube-apiserver kubectl get --raw /readyz
  say "API server ready after $((SECONDS - begin)) s"
  start_kube_controller_manager
  start_kube_scheduler
  start_kubelet
  start_kube_proxy
  sed "s#@VOLUMES@#$STATE/volumes#; s#@DOMAIN@#$CLUSTER_DOMAIN#" "$CLUSTER_SRC"/manifests/*.yaml | kubectl apply -f - >/dev/null
  start_networkpolicies
  wait_for 60 "the kubelet to register its node" kubectl get node "$NODE_NAME"
  kubectl wait --for=condition=Ready "node/$NODE_NAME" --timeout=90s >/dev/null || die "the node is not Ready; see $LOGS/kubelet.log"
  say "node Ready after $((SECONDS - begin)) s"
  on_further_nodes start_node_daemons
  on_further_nodes await_node
  (($(node_count) == 1)) || say "all $(node_count) nodes started after $((SECONDS - begin)) s"
  kubectl --namespace kube-system rollout status deployment/coredns --timeout=90s >/dev/null
  kubectl --namespace local-path-storage rollout status deployment/local-path-provisioner --timeout=90s >/dev/null
  wait_for 30 "networkpolicies to write its table" nft list table ip "$POLICY_TABLE"
  # After a hard stop the Deployments' status is that of before, so it is asked for itself.
  wait_for 60 "cluster DNS to answer" bash -c "exec 3<>/dev/tcp/$DNS_IP/53"
  say "DNS and storage ready after $((SECONDS - begin)) s; now: eval \"\$($CLUSTER_SRC/cluster env)\""
}

# Ends every process of every pod: they are all in our own control group.
end_pods() {
  local pids directory
  for _ in 1 2 3 4 5; do
    pids=$(existing_cgroups | while read -r directory; do
      find "$directory" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done | sort -u)
    [[ -n $pids ]] || return 0
    # shellcheck disable=SC2086  # a list of numbers
    kill -9 $pids 2>/dev/null || true
    sleep 0.3
  done
  say "warning: processes outlived five rounds of SIGKILL: $pids"
}

# The shims outlive containerd, by design; ours are those with our socket in their command line.
end_shims() {
  local task
  if running containerd; then
    for task in $(ctr_k8s tasks ls --quiet 2>/dev/null); do ctr_k8s tasks rm --force "$task" >/dev/null 2>&1 & done
    wait
    stop containerd
  fi
  kill_shims
}

kill_shims() {
  local pid
  for pid in $(pgrep -f "containerd-shim-runc-v2 .*-address $CONTAINERD_SOCKET" || true); do
    kill -9 "$pid" 2>/dev/null || true
  done
}

# A killed shim leaves its socket, under a name that does not tell whose it was; one that nobody listens to is nobody's.
remove_dead_sockets() {
  local socket
  for socket in /run/containerd/s/*; do
    [[ ! -S $socket ]] || grep -qF "$socket" /proc/net/unix || rm -f "$socket"
  done
}

unmount_state() {
  local mount
  mounts_below "$STATE" | while read -r mount; do
    umount --lazy "$mount" || true
  done
}

remove_cgroups() {
  local directory
  while read -r directory; do
    find "$directory" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done < <(existing_cgroups)
}

# Paths that containerd, the CNI plugins and the kubelet have built in.
remove_traces_outside_state() {
  local directory
  find /var/lib/cni/results \( -name 'kraftbridge-*' -o -name 'cni-loopback-*' \) -delete 2>/dev/null || true
  find /var/log/containers -lname "$STATE/*" -delete 2>/dev/null || true
  remove_cgroups
  remove_dead_sockets
  rm -f /var/lib/kubelet/device-plugins/{kubelet.sock,kubelet_internal_checkpoint,DEPRECATION}
  for directory in /run/containerd /var/log/containers /var/lib/cni /var/lib/kubelet /usr/libexec/kubernetes; do
    find "$directory" -depth -type d -empty -delete 2>/dev/null || true
  done
}

down() {
  local name
  on_further_nodes kill_node
  for name in kubelet networkpolicies kube-proxy kube-scheduler kube-controller-manager kube-apiserver etcd; do stop "$name" 3; done
  end_pods
  end_shims
  unmount_state
  for name in "$BRIDGE" "$NODES_BRIDGE"; do ip link delete "$name" 2>/dev/null || true; done
  delete_proxy_tables
  delete_policy_table
  remove_traces_outside_state
  [[ ! -s $STATE/sysctl.before ]] || sysctl -q -p "$STATE/sysctl.before" >/dev/null 2>&1 || true
  # In one step first: a down that is cut off here leaves no half of a state that up would take for a whole.
  rm -rf "$STATE.removed"
  [[ ! -d $STATE ]] || mv "$STATE" "$STATE.removed"
  rm -rf "$STATE.removed" "$STATE.in-use"
  say "down; only the cache is left: $CACHE"
}

# restart NAME: on every node that has it.
restart() {
  [[ " ${DAEMONS[*]} " == *" $1 "* ]] || die "no component '$1'; there are: ${DAEMONS[*]}"
  stop "$1" 15
  on_further_nodes stop "$1" 15
  up
}

status() {
  status_of "${DAEMONS[@]}"
  on_further_nodes status_of_further_node
  [[ -f $KUBECONFIG ]] || return 0
  kubectl get nodes --output wide && kubectl get pods --all-namespaces
}

status_of_further_node() {
  local notes=()
  [[ ! -e $NODE_STATE/cut ]] || notes+=("cut off")
  [[ ! -e $NODE_STATE/stopped ]] || notes+=("stopped")
  echo "$NODE_NAME${notes:+: ${notes[*]}}"
  status_of pause "${NODE_DAEMONS[@]}"
}

status_of() {
  local name pid
  for name in "$@"; do
    if pid=$(pid_of "$name"); then
      printf '%-24s pid %-7s rss %4d MiB  cpu %s\n' "$name" "$pid" \
        $(($(awk '/^VmRSS/{print $2}' "/proc/$pid/status") / 1024)) "$(ps -o time= -p "$pid")"
    else
      printf '%-24s not running\n' "$name"
    fi
  done
}
