# Paths, versions and small helpers shared by the cluster and image scripts.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used by the other files
CLUSTER_SRC=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
# shellcheck source=../versions.env
source "$CLUSTER_SRC/versions.env"

# The cache outlives `down`: binaries, archives, downloads. The state is one run of the cluster.
CACHE=${KRAFTBRIDGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kraftbridge}
STATE=${KRAFTBRIDGE_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/kraftbridge/cluster}
BIN=$CACHE/bin
HELM=${HELM:-3}
HELM_BIN=$CACHE/helm-$HELM
ARCHIVES=$CACHE/images
STAMPS=$CACHE/stamps
PKI=$STATE/pki
# Of the first node, which is the machine itself; use_node (nodes.sh) turns to another one.
NODE_STATE=$STATE
LOGS=$STATE/log
PIDS=$STATE/run
FIRST_NODES_SOCKET=$STATE/containerd/containerd.sock
CONTAINERD_SOCKET=$FIRST_NODES_SOCKET

export KUBECONFIG=$STATE/kubeconfig
# The cache comes first: Debian's kubectl, where installed, is years older than the server.
export PATH=$HELM_BIN:$BIN:$CACHE/go/bin:$PATH:/usr/local/go/bin:/usr/sbin:/sbin

say() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }
die() {
  printf 'cluster: %s\n' "$*" >&2
  exit 1
}

# containerd's own client, pointed at this cluster's namespace of images and containers.
ctr_k8s() { ctr --address "$CONTAINERD_SOCKET" --namespace k8s.io "$@"; }

# run_locked NAME COMMAND...: becomes COMMAND under a lock; a second caller says so and waits.
# flock(1) keeps the descriptor to itself: inherited, it would be held by every daemon and by every child that
# outlives a killed script. If flock itself is killed, the command dies with it (pdeathsig).
run_locked() {
  local file=$CACHE/$1.lock
  shift
  mkdir -p "$CACHE"
  flock --nonblock "$file" true || say "another command is at work; waiting for it"
  exec flock --close "$file" setpriv --pdeathsig KILL "$@"
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || die "timed out waiting for $what; its log is in $LOGS"
    sleep 0.2
  done
}

# with_progress WHAT LOGFILE COMMAND...: runs COMMAND with its output in LOGFILE and shows,
# every few seconds, the time gone by and how far the log has come. Prints the log's end on failure.
with_progress() {
  local what=$1 log=$2 begin=$SECONDS job status=0
  shift 2
  : >"$log"
  "$@" >>"$log" 2>&1 &
  job=$!
  while kill -0 "$job" 2>/dev/null; do
    sleep 1
    if (((SECONDS - begin) % 5 == 0)) && kill -0 "$job" 2>/dev/null; then
      say "$what: $((SECONDS - begin)) s, $(wc -l <"$log") steps, now $(tail -n1 "$log" | cut -c1-70)"
    fi
  done
  wait "$job" || status=$?
  if ((status)); then
    tail -n 20 "$log" >&2
    die "$what failed; the whole log is $log"
  fi
  say "$what: done in $((SECONDS - begin)) s"
}
