# The four images that the cluster itself runs, each one static program.
# shellcheck shell=bash

# single_program_image NAME:TAG ROOT BUILDAH_CONFIG_OPTION...: ROOT becomes the only layer.
single_program_image() {
  local name=$1 root=$2 container archive
  shift 2
  archive=$ARCHIVES/$(basename "${name%:*}").tar
  mkdir -p "$ARCHIVES"
  mkdir -p "$root/tmp"
  chmod 1777 "$root/tmp"
  container=kraftbridge-cluster-image
  buildah rm "$container" >/dev/null 2>&1 || true # of a build that was cut off
  buildah from --name "$container" scratch >/dev/null
  buildah add --quiet "$container" "$root" / >/dev/null
  buildah config "$@" "$container"
  buildah commit --quiet --rm --timestamp 0 "$container" "localhost/$name" >/dev/null
  rm -f "$archive.new"
  buildah push --quiet "localhost/$name" "docker-archive:$archive.new:localhost/$name"
  mv "$archive.new" "$archive"
  rm -rf "$root"
}

# The helper pods of the storage provisioner and the proofs use it.
fetch_busybox() {
  built busybox "$1" && return
  local work=$CACHE/work/busybox
  rm -rf "$work"
  mkdir -p "$work" "$BIN"
  (cd "$work" && chmod 755 . && apt-get -q download busybox-static >/dev/null 2>&1 && dpkg -x busybox-static_*.deb .) ||
    die "apt-get download busybox-static failed (try: apt-get update)"
  mv "$work/bin/busybox" "$BIN/busybox"
  rm -rf "$work"
  mark_built busybox "$1"
}

build_cluster_images() {
  local version="pause-$KUBERNETES_VERSION coredns-$COREDNS_VERSION local-path-$LOCAL_PATH_PROVISIONER_VERSION busybox-1.35 layout-1"
  fetch_busybox 1.35
  built cluster-images "$version" && return
  local root=$CACHE/work/image applet begin=$SECONDS
  say "building the images of pause, CoreDNS, the storage provisioner and busybox"
  rm -rf "$root"
  mkdir -p "$root" && cp "$BIN/pause" "$root/"
  single_program_image kraftbridge-pause:1 "$root" --entrypoint '["/pause"]' --user 65535
  mkdir -p "$root" && cp "$BIN/coredns" "$root/"
  single_program_image kraftbridge-coredns:1 "$root" --entrypoint '["/coredns"]'
  mkdir -p "$root" && cp "$BIN/local-path-provisioner" "$root/"
  single_program_image kraftbridge-local-path-provisioner:1 "$root" --entrypoint '["/local-path-provisioner"]'
  mkdir -p "$root/bin" "$root/etc" && cp "$BIN/busybox" "$root/bin/"
  for applet in $("$BIN/busybox" --list); do
    [[ $applet == busybox ]] || ln -s busybox "$root/bin/$applet"
  done
  single_program_image kraftbridge-busybox:1 "$root" --cmd sh --env PATH=/bin
  mark_built cluster-images "$version"
  say "images: done in $((SECONDS - begin)) s"
}

load_images() { # FILE...
  local file
  for file in "$@"; do
    [[ -f $file ]] || die "no such archive: $file"
    ctr_k8s images import --no-unpack=false "$file" >/dev/null || die "containerd did not take $file"
  done
}

# A further node gets what the first one has. Each has its own copy: containerd does not share its store.
copy_images() {
  local missing
  mapfile -t missing < <(comm -13 <(list_images "$CONTAINERD_SOCKET") <(list_images "$FIRST_NODES_SOCKET") | cut -d' ' -f1)
  ((${#missing[@]})) || return 0
  ctr --address "$FIRST_NODES_SOCKET" --namespace k8s.io images export - "${missing[@]}" | ctr_k8s images import - >/dev/null ||
    die "containerd of $NODE_NAME did not take ${missing[*]}"
}

# list_images SOCKET: names with digests, without the names that the kubelet's side makes of digests.
list_images() { ctr --address "$1" --namespace k8s.io images ls | awk 'NR > 1 && $1 !~ /sha256:/ {print $1, $3}' | sort; }

# has_image NAME: NAME as a pod would write it.
has_image() {
  local name=$1
  [[ ${name##*/} == *:* ]] || name=$name:latest
  if [[ $name == */* && (${name%%/*} == *.* || ${name%%/*} == *:* || ${name%%/*} == localhost) ]]; then
    ctr_k8s images ls --quiet "name==$name" 2>/dev/null | grep -qxF "$name"
  else # containerd puts a default registry in front, and library/ for a name without a path
    ctr_k8s images ls --quiet 2>/dev/null | sed -E 's,^[^/]*\.[^/]*/(library/)?,,' | grep -qxF "$name"
  fi
}

tag_image() { # NAME NEW
  ctr_k8s images tag --force "$1" "$2" >/dev/null || die "containerd did not name $1 $2"
}

# remove_image NAME: the kubelet keeps an image by its tag, its digest and its id, and the layers as long as one of them is left.
remove_image() {
  local digest names
  digest=$(ctr_k8s images ls "name==$1" | awk 'NR == 2 {print $3}')
  [[ -n $digest ]] || die "the kubelet has no image $1"
  mapfile -t names < <(ctr_k8s images ls | awk -v digest="$digest" '$3 == digest {print $1}')
  ctr_k8s images rm --sync "${names[@]}" >/dev/null
}
