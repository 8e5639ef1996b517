# The Debian packages that the cluster and the images need.
# shellcheck shell=bash
DEBIAN_PACKAGES=(
  containerd runc containernetworking-plugins nftables iptables conntrack iproute2 procps kmod openssl # the node
  gcc libc6-dev ca-certificates                                                                        # pause
  debootstrap buildah fuse-overlayfs maven openjdk-17-jdk-headless                                     # images
)
# Kubernetes 1.37 is written in Go 1.26.
GO_MINIMUM_MINOR=26

missing_packages() {
  local package
  for package in "${DEBIAN_PACKAGES[@]}"; do
    [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

prerequisites() {
  local missing
  [[ $(id -u) == 0 ]] || die "must be root: the kubelet mounts, makes cgroups and network namespaces"
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]})); then
    say "installing Debian packages: ${missing[*]}"
    apt-get -q update >/dev/null
    # Where systemd runs, Debian starts a containerd service of its own: idle, and not ours.
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
  fi
  require_go
  say "prerequisites: all there"
}

go_is_new_enough() {
  local minor
  minor=$(go version 2>/dev/null | sed -nE 's/.* go1\.([0-9]+).*/\1/p')
  ((${minor:-0} >= GO_MINIMUM_MINOR))
}

# Debian 12's own Go (1.19) is too old for Kubernetes, but able to fetch a newer one: as a module, by its checksum.
require_go() {
  local source
  go_is_new_enough && return
  say "fetching Go $GO_VERSION from the Go module proxy"
  if ! command -v go >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends golang-go >/dev/null
  fi
  source=$(go_module_directory "golang.org/toolchain@v0.0.1-go$GO_VERSION.linux-$(dpkg --print-architecture)")
  [[ -d $source ]] || die "the Go module proxy did not deliver Go $GO_VERSION; put a Go 1.$GO_MINIMUM_MINOR or later on PATH"
  rm -rf "$CACHE/go" "$CACHE/go.new"
  cp -r "$source" "$CACHE/go.new"
  chmod -R u+w "$CACHE/go.new" # modules are read-only and without execute bits
  chmod +x "$CACHE"/go.new/bin/* "$CACHE"/go.new/pkg/tool/*/*
  mv "$CACHE/go.new" "$CACHE/go"
  hash -r
  go_is_new_enough || die "Go in $CACHE/go does not run: $(go version 2>&1)"
}
