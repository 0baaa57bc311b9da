#!/usr/bin/env bash
# Brings a checkout to the state that an npm script needs, and does nothing when it is there already.
#
#   setup.sh node           npm packages (the lock file, no install scripts)
#   setup.sh system         node and Debian packages
#   setup.sh native         system and the native worker
#   setup.sh gen            system, then src/proto from proto/*.proto
#   setup.sh run [ARGS]     what ARGS need, then the meshnet command itself
#   setup.sh test [SUITES]  native and the unpatched reference, then the tests; last line `N passed, N failed`
#
# It talks on stderr only: stdout belongs to the command.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PATH="$PWD/node_modules/.bin:$PATH"

# What the build and the tests run: command or file that shows that it is there, and its Debian package.
system_packages=(
  git:git g++:g++ cmake:cmake ninja:ninja-build ccache:ccache pkg-config:pkg-config
  protoc:protobuf-compiler grpc_cpp_plugin:protobuf-compiler-grpc
  /usr/include/grpcpp/grpcpp.h:libgrpc++-dev
  /usr/include/google/protobuf/message.h:libprotobuf-dev
  /usr/include/openssl/ssl.h:libssl-dev
  /etc/ssl/certs/ca-certificates.crt:ca-certificates
  python3:python3
)

# What tests and benchmarks hold ours against, from the unpatched tree.
stock_targets=(meshnet-reference meshnet-bench-whole llama-bench llama-batched-bench llama-quantize ggml-rpc-server)

say() { echo "setup: $*" >&2; }

node_ready() { [[ node_modules/.package-lock.json -nt package-lock.json && -e node_modules/.bin/mocha ]]; }

# One installation at a time in a checkout. The lock is this script itself, so that nothing is left behind.
locked() {
  exec 9<setup.sh
  flock 9
  "$@" 9<&-
  exec 9<&-
}

setup_node() { node_ready || locked install_node; }

install_node() {
  ! node_ready || return 0
  say 'installing npm packages'
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  touch node_modules/.package-lock.json
}

setup_system() { locked install_system; }

install_system() {
  local entry probe missing=()
  for entry in "${system_packages[@]}"; do
    probe=${entry%%:*}
    if [[ $probe == /* ]]; then [[ -e $probe ]]; else type -P "$probe" >/dev/null; fi || missing+=("${entry##*:}")
  done
  python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
  [[ ${#missing[@]} -gt 0 ]] || return 0

  if [[ $EUID -ne 0 ]] || ! type -P apt-get >/dev/null; then
    say "error: these Debian packages are missing: ${missing[*]}"
    say "next: apt-get install ${missing[*]}"
    return 1
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"; } </dev/null >&2
}

# Nothing that a build reads is newer than the stamp of the last one.
native_ready() {
  [[ -e $1 ]] || return 1
  local changed
  changed=$(find native-worker proto patches setup.sh -path native-worker/build -prune -o -newer "$1" -print -quit) &&
    [[ -z $changed ]]
}

# setup_native NAME [ARGS]: one build of native-worker/build.sh, remembered under NAME.
setup_native() {
  local stamp=native-worker/build/.setup-$1
  shift
  ! native_ready "$stamp" || return 0
  setup_system
  local begun
  begun=$(mktemp)
  bash native-worker/build.sh "$@" </dev/null >&2
  # The time before the build: what changes while it runs is built next time.
  touch -r "$begun" "$stamp"
  rm -f "$begun"
}

generate() {
  local out=src/proto
  mkdir -p "$out"
  protoc -I proto --plugin=protoc-gen-es="$PWD/node_modules/.bin/protoc-gen-es" \
    --es_out="${1:-$out}" --es_opt=target=js+dts,import_extension=js proto/*.proto
}

# Commands that only talk to a running node, and every --help, work without the native worker.
needs_native() {
  local arg
  for arg in "$@"; do
    case $arg in --help | -h | --version | -v) return 1 ;; esac
  done
  case ${1:-} in up | demo) return 0 ;; *) return 1 ;; esac
}

mode=${1:-native}
shift || true

if [[ $mode == test ]]; then
  trap 'echo "0 passed, 1 failed"' EXIT
fi

setup_node
case $mode in
  node) ;;
  system) setup_system ;;
  gen)
    setup_system
    generate "$@"
    ;;
  native) setup_native worker ;;
  test)
    setup_native worker
    setup_native stock --stock "${stock_targets[@]/#/--target=}"
    ;;
  run)
    if needs_native "$@"; then
      setup_native worker
    fi
    ;;
  *)
    say "error: unknown mode $mode"
    exit 2
    ;;
esac

case $mode in
  run) exec bin/meshnet.js "$@" ;;
  test) exec node test/run.ts "$@" ;;
esac
