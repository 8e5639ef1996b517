# Builds the cluster's programs and images from the Go module proxy and Debian packages.
# Everything is made under a temporary name and renamed, so a build cut off half-way leaves nothing false.
# shellcheck shell=bash

go_module_directory() { # MODULE@VERSION
  (cd / && go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",/\1/p'
}

# built NAME VERSION: true if that very version is in the cache.
built() { [[ $(cat "$STAMPS/$1" 2>/dev/null) == "$2" ]]; }

mark_built() { # NAME VERSION
  mkdir -p "$STAMPS"
  echo "$2" >"$STAMPS/$1.new"
  mv "$STAMPS/$1.new" "$STAMPS/$1"
}

# The version of Kubernetes' libraries, as this Kubernetes has them.
KUBERNETES_LIBRARIES=v0.${KUBERNETES_VERSION#1.}

# go_build NAME MODULE VERSION STAGING_VERSION LDFLAGS PACKAGE_OR_DIRECTORY...
# A directory holds a main package of our own.
# Compiles commands of MODULE with exactly the dependency versions its own go.mod and go.sum name.
# `go install module@version` refuses modules with `replace`; and relative replaces (./staging, ../api) only mean
# something in the upstream git tree, so they are turned into STAGING_VERSION of the same path.
# With KUBERNETES_LIBRARIES as STAGING_VERSION, MODULE gets those libraries: clients of Kubernetes compile little else,
# and what one of them compiled is there for the next one.
go_build() {
  local name=$1 module=$2 version=$3 staging=$4 ldflags=$5 source work out
  shift 5
  source=$(go_module_directory "$module@$version")
  [[ -d $source ]] || die "the Go module proxy did not deliver $module@$version (try: go mod download $module@$version)"
  work=$CACHE/work/$name
  out=$work/out
  rm -rf "$work"
  mkdir -p "$out" "$BIN"
  sed -E -e 's#^module .*#module kraftbridge.local/build#' \
    -e "s#^(\s*)(\S+) => \.\.?/.*#\1\2 => \2 $staging#" "$source/go.mod" >"$work/go.mod"
  install -m 644 "$source/go.sum" "$work/go.sum"
  if [[ -d $1 ]]; then
    cp "$1"/*.go "$work/"
    set -- .
  fi
  (
    cd "$work" || exit
    go mod edit -require="$module@$version"
    [[ $staging != "$KUBERNETES_LIBRARIES" ]] || sed -i -E "s#^(\s*k8s\.io/[a-z-]+) v0\.[0-9]+\.[0-9]+( // indirect)?\$#\1 $staging#" go.mod
    CGO_ENABLED=0 GOFLAGS=-mod=mod nice -n 5 go build -v -trimpath -tags grpcnotrace \
      -ldflags "-s -w $ldflags" -o "$out/" "$@"
  )
}

# install_built NAME [OLD=NEW]: moves the fresh programs into place, renaming one if asked.
install_built() {
  local out=$CACHE/work/$1/out
  [[ -z ${2:-} ]] || mv "$out/${2%=*}" "$out/${2#*=}"
  mv -f "$out"/* "$BIN/"
  rm -rf "${CACHE:?}/work/$1"
}

# program NAME VERSION RENAME GO_BUILD_ARGUMENTS...: once per version.
program() {
  local name=$1 version=$2 rename=$3
  shift 3
  built "$name" "$version" && return
  mkdir -p "$CACHE/work"
  with_progress "building $name $version" "$CACHE/work/$name.log" go_build "$name" "$@"
  install_built "$name" "$rename"
  mark_built "$name" "$version"
}

build_kubernetes() {
  local package=k8s.io/component-base/version v=$KUBERNETES_VERSION
  program kubernetes "$v" "" k8s.io/kubernetes "v$v" "v0.${v#1.}" \
    "-X $package.gitVersion=v$v -X $package.gitMajor=1 -X $package.gitMinor=${v:2:2} -X $package.gitTreeState=clean" \
    k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy,kubectl}
}

build_etcd() {
  program etcd "$ETCD_VERSION" server=etcd go.etcd.io/etcd/server/v3 "v$ETCD_VERSION" "v$ETCD_VERSION" "" \
    go.etcd.io/etcd/server/v3
}

build_coredns() {
  program coredns "$COREDNS_VERSION" build=coredns github.com/coredns/coredns "v$COREDNS_VERSION" \
    "$KUBERNETES_LIBRARIES" "" \
    "$CLUSTER_SRC/coredns"
}

# Against the client library that is part of this Kubernetes.
build_networkpolicies() {
  local v=$KUBERNETES_VERSION source=$CLUSTER_SRC/networkpolicies
  program networkpolicies "$v-$(cat "$source"/*.go | sha256sum | cut -c1-12)" build=networkpolicies \
    k8s.io/kubernetes "v$v" "v0.${v#1.}" "" "$source"
}

build_local_path_provisioner() {
  local v=$LOCAL_PATH_PROVISIONER_VERSION module=github.com/rancher/local-path-provisioner
  program local-path-provisioner "$v" "" "$module" "v$v" "$KUBERNETES_LIBRARIES" "-X main.VERSION=v$v" "$module"
}

# Each major version has a folder of its own, so that HELM=4 finds the other one.
build_helm() {
  local version=HELM_${HELM}_VERSION module=helm.sh/helm/v$HELM
  [[ -n ${!version:-} ]] || die "HELM is 3 or 4, not '$HELM'"
  BIN=$HELM_BIN program "helm-$HELM" "${!version}" "" "$module" "v${!version}" "$KUBERNETES_LIBRARIES" \
    "-X $module/internal/version.version=v${!version}" "$module/cmd/helm"
}

build_spark_operator() {
  local v=$SPARK_OPERATOR_VERSION module=github.com/kubeflow/spark-operator/v2
  program spark-operator "$v" operator=spark-operator "$module" "v$v" none "" "$module/cmd/operator"
}

# Prometheus and promtool, for the tests of metrics and alerts (`cluster build-prometheus`); the cluster itself needs neither.
build_prometheus() {
  local v=$PROMETHEUS_VERSION package=github.com/prometheus/common/version module=github.com/prometheus/prometheus
  program prometheus "$v" "" "$module" "v0.$(printf '%d%02d' "${v%%.*}" "$(cut -d. -f2 <<<"$v")").${v##*.}" none "-X $package.Version=$v" \
    "$module/cmd/prometheus" "$module/cmd/promtool"
}

# An image registry, for the proof of a release (`cluster build-registry`); the cluster itself needs none.
build_registry() {
  local v=$REGISTRY_VERSION module=github.com/distribution/distribution/v3
  program registry "$v" "" "$module" "v$v" none "" "$module/cmd/registry"
}

# The pod sandbox: one C file of the Kubernetes module.
build_pause() {
  built pause "$KUBERNETES_VERSION" && return
  local source
  source=$(go_module_directory "k8s.io/kubernetes@v$KUBERNETES_VERSION")/build/pause/linux/pause.c
  gcc -Os -static -s -DVERSION="$KUBERNETES_VERSION" -o "$BIN/pause.new" "$source"
  mv "$BIN/pause.new" "$BIN/pause"
  mark_built pause "$KUBERNETES_VERSION"
}

# What `up` needs.
build_node_programs() {
  build_kubernetes
  build_pause
  build_etcd
  build_coredns
  build_networkpolicies
  build_local_path_provisioner
}
