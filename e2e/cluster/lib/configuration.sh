# What a node's programs read, and the network of the first node.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used by the other files
# These are the first node's; use_node (nodes.sh) turns to another one.
NODE=1
NODE_NAME=kraftbridge
# The first node's address is the pod bridge's own: always there, and on no real network.
NODE_IP=10.244.0.1
POD_CIDR=10.244.0.0/24
POD_GATEWAY=$NODE_IP
KUBELET=kubelet # the name of its certificate
CGROUP=${KRAFTBRIDGE_CGROUP:-kraftbridge}
# The same for every node.
CLUSTER_CIDR=10.244.0.0/16
SERVICE_CIDR=10.96.0.0/16
DNS_IP=10.96.0.10
CLUSTER_DOMAIN=${KRAFTBRIDGE_CLUSTER_DOMAIN:-cluster.local}
BRIDGE=kraftbridge0
API_PORT=6443
API_URL=https://$NODE_IP:$API_PORT # the first node's, for every node
ETCD_URL=http://127.0.0.1:12379
ETCD_PEER_URL=http://127.0.0.1:12380

# write_if_changed FILE <CONTENT: kube-proxy exits when its file is rewritten, even by the same text.
write_if_changed() {
  cat >"$1.new"
  if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

write_configuration() {
  mkdir -p "$NODE_STATE"/{containerd,cni/net.d,kubelet,volumes} "$LOGS" "$PIDS"
  containerd_configuration | write_if_changed "$NODE_STATE/containerd/config.toml"
  network_configuration | write_if_changed "$NODE_STATE/cni/net.d/10-kraftbridge.conflist"
  kubelet_configuration | write_if_changed "$NODE_STATE/kubelet.yaml"
  proxy_configuration | write_if_changed "$NODE_STATE/proxy.yaml"
}

# restrict_oom_score_adj: without CAP_SYS_RESOURCE runc cannot lower oom_score_adj.
# netns_mounts_under_state_dir: so that `down` can find and unmount them.
containerd_configuration() {
  cat <<END
version = 2
root = "$NODE_STATE/containerd/root"
state = "$NODE_STATE/containerd/state"
[grpc]
  address = "$CONTAINERD_SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/kraftbridge-pause:1"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "$NODE_STATE/containerd/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$NODE_STATE/cni/net.d"
[plugins."io.containerd.internal.v1.opt"]
  path = "$NODE_STATE/containerd/opt"
END
}

# No address translation: pods reach pods, Services and the nodes, and nothing else.
network_configuration() {
  cat <<END
{"cniVersion": "1.0.0", "name": "kraftbridge", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_CIDR", "gateway": "$POD_GATEWAY"}]],
            "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$NODE_STATE/cni/ipam"}}]}
END
}

# Images cannot be pulled again, so they are never collected, and eviction is by absolute amounts:
# the defaults are percentages of a disk that may be nearly full.
kubelet_configuration() {
  cat <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $PKI/$KUBELET.crt
tlsPrivateKeyFile: $PKI/$KUBELET.key
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP            # everything a pod runs is below it, so that down can end it
failCgroupV1: false
failSwapOn: false
clusterDNS: [$DNS_IP]
clusterDomain: $CLUSTER_DOMAIN
resolvConf: ""                  # never the host's resolvers
oomScoreAdj: 0                  # -999 needs CAP_SYS_RESOURCE
maxOpenFiles: $(ulimit -Hn | sed 's/unlimited/1048576/')
makeIPTablesUtilChains: false   # no iptables rules at all: kube-proxy uses nftables
podLogsDir: $LOGS/pods
volumePluginDir: $NODE_STATE/kubelet-plugins
imageGCHighThresholdPercent: 100
imageMinimumGCAge: 87600h
evictionHard: {memory.available: 200Mi, nodefs.available: 2Gi, imagefs.available: 2Gi, nodefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 5s
END
}

proxy_configuration() {
  cat <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $PKI/proxy.kubeconfig}
mode: nftables
clusterCIDR: $CLUSTER_CIDR
hostnameOverride: $NODE_NAME
bindAddress: $NODE_IP
nodePortAddresses: [$NODE_IP/32]
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}   # leave the host's sysctls alone
END
}

# ------------------------------------------------------------------ network of the first node, and cgroups
KEPT_SYSCTLS=(net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables fs.inotify.max_user_instances
  vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)

set_up_network() {
  modprobe br_netfilter 2>/dev/null || true
  [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]] ||
    die "the kernel has no br_netfilter: a pod could not reach itself or its neighbours through a Service (try: modprobe br_netfilter)"
  if [[ ! -s $STATE/sysctl.before ]]; then # the kubelet changes some of them as well
    sysctl -e "${KEPT_SYSCTLS[@]}" 2>/dev/null >"$STATE/sysctl.new"
    mv "$STATE/sysctl.new" "$STATE/sysctl.before"
  fi
  sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 fs.inotify.max_user_instances=8192
  if iptables -S FORWARD 2>/dev/null | grep -q -- '-P FORWARD DROP'; then
    say "warning: the FORWARD chain drops by default (Docker does that); pods may not reach each other: iptables -P FORWARD ACCEPT"
  fi
  set_up_pod_bridge
  ip route replace "$SERVICE_CIDR" dev "$BRIDGE" src "$NODE_IP" # host to ClusterIP without a default route
}

# A fixed MAC: otherwise the bridge takes that of a port, and changes it when that pod goes.
set_up_pod_bridge() {
  in_node ip link show "$BRIDGE" >/dev/null 2>&1 ||
    in_node ip link add "$BRIDGE" address "02:6b:72:62:00:0$NODE" type bridge
  in_node ip address replace "$POD_GATEWAY/24" dev "$BRIDGE"
  in_node ip link set "$BRIDGE" up
}

# The kubelet wants its group to exist: in every hierarchy of cgroup v1, or in the only one of v2.
make_cgroups() {
  local hierarchy
  local shares=16384
  local weight=1000
  if ((NODE > 1)); then # as much as the group that the first node's kubelet makes beside it
    shares=$(($(nproc) * 1024))
    weight=100
  fi
  # All pods together compete as one group with each single process of the host: without more weight a busy host starves the cluster.
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    mkdir -p "/sys/fs/cgroup/$CGROUP"
    [[ ! -w /sys/fs/cgroup/$CGROUP/cpu.weight ]] || echo "$weight" >"/sys/fs/cgroup/$CGROUP/cpu.weight"
    return
  fi
  for hierarchy in /sys/fs/cgroup/*/; do
    [[ $hierarchy == */unified/ ]] || mkdir -p "$hierarchy$CGROUP"
  done
  [[ ! -w /sys/fs/cgroup/cpu/$CGROUP/cpu.shares ]] || echo "$shares" >"/sys/fs/cgroup/cpu/$CGROUP/cpu.shares"
}

existing_cgroups() {
  local directory
  for directory in "/sys/fs/cgroup/$CGROUP" /sys/fs/cgroup/*/"$CGROUP"; do
    [[ ! -d $directory ]] || echo "$directory"
  done
}

# A restarted 1.34 kube-proxy trusts endpoint chains that its predecessor had flushed but not yet deleted:
# connections to those Services hang for ever. So it always starts from nothing.
delete_proxy_tables() {
  local family
  for family in ip ip6; do in_node nft delete table "$family" kube-proxy 2>/dev/null || true; done
}

POLICY_TABLE=kraftbridge-networkpolicies
delete_policy_table() { nft delete table ip "$POLICY_TABLE" 2>/dev/null || true; }
