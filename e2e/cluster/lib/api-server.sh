# An API server of another Kubernetes version with its controller manager and etcd, without a node: enough for CRD rules and admission policies.
# shellcheck shell=bash
# shellcheck disable=SC2034  # read by the functions of the other files

# build_api_server VERSION: beside the cluster's own, since several versions may be in the cache.
build_api_server() {
  local v=$1 package=k8s.io/component-base/version minor=${1#1.}
  BIN=$CACHE/api-server-$v program "api-server-$v" "$v with controller manager" "" k8s.io/kubernetes "v$v" "v0.${v#1.}" \
    "-X $package.gitVersion=v$v -X $package.gitMajor=1 -X $package.gitMinor=${minor%.*} -X $package.gitTreeState=clean" \
    k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager}
}

# with_api_server VERSION COMMAND...: runs COMMAND against it (KUBECONFIG, KUBE_CONTEXT), then removes every trace but the cache.
# It shares nothing with the embedded cluster: own state, own ports, loopback only.
with_api_server() {
  local version=$1 status=0
  shift
  [[ $version =~ ^1\.[0-9]+\.[0-9]+$ ]] || die "KUBERNETES_VERSION is a full version such as 1.35.4, not '$version'"
  (run_locked cluster "$SELF" --locked build-node) # etcd, kubectl
  [[ $version == "$KUBERNETES_VERSION" ]] || build_api_server "$version"
  STATE=$STATE-api-server-$version
  LOGS=$STATE/log PIDS=$STATE/run PKI=$STATE/pki KUBECONFIG=$STATE/kubeconfig
  NODE_IP=127.0.0.1 API_PORT=16443 API_URL=https://127.0.0.1:16443
  ETCD_URL=http://127.0.0.1:12479 ETCD_PEER_URL=http://127.0.0.1:12480
  PATH=$CACHE/api-server-$version:$PATH
  trap end_api_server EXIT
  end_api_server # of a run that was killed
  mkdir -p "$LOGS" "$PIDS"
  make_pki
  start_etcd
  # Addresses of the loopback network cannot be endpoints of the Service "kubernetes", and nobody asks for it here.
  start_kube_apiserver --endpoint-reconciler-type=none
  wait_for 90 "kube-apiserver $version" kubectl get --raw /readyz
  start_kube_controller_manager --secure-port=20257
  say "API server $(kubectl version --output json | sed -nE '/serverVersion/,$ s/.*"gitVersion": "(.*)".*/\1/p') runs without a node, with etcd $ETCD_VERSION"
  KUBE_CONTEXT=kraftbridge "$@" || status=$?
  return "$status"
}

end_api_server() {
  stop kube-controller-manager 3
  stop kube-apiserver 3
  stop etcd 3
  rm -rf "$STATE"
}
