#!/usr/bin/env bash
# Brings a checkout to the state that an npm script needs, and does nothing when it is there already.
#
#   setup.sh node           npm packages (the lock file, no install scripts)
#   setup.sh system         node and Debian packages
#   setup.sh native         system and the native worker
#   setup.sh gen            system, then src/proto from proto/*.proto
#   setup.sh run [ARGS]     what ARGS need, then the meshnet command itself
#   setup.sh test [SUITES]  native, then the tests; its last line is `N passed, N failed` in any case
#
# It talks on stderr only: stdout belongs to the command.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PATH="$PWD/node_modules/.bin:$PATH"

stamp=native-worker/build/.setup-stamp

# command or file that shows it is installed : Debian package
system_packages=(
  g++:g++ cmake:cmake ninja:ninja-build git:git python3:python3 pkg-config:pkg-config
  protoc:protobuf-compiler grpc_cpp_plugin:protobuf-compiler-grpc
  /usr/include/grpcpp/grpcpp.h:libgrpc++-dev
  /usr/include/google/protobuf/message.h:libprotobuf-dev
  /usr/include/openssl/ssl.h:libssl-dev
)

say() { echo "setup: $*" >&2; }

node_ready() { [[ node_modules/.package-lock.json -nt package-lock.json && -e node_modules/.bin/mocha ]]; }

setup_node() {
  node_ready && return
  say 'installing npm packages'
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  touch node_modules/.package-lock.json
}

setup_system() {
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

native_ready() {
  [[ -e $stamp ]] || return 1
  local changed
  changed=$(find native-worker proto patches setup.sh -path native-worker/build -prune -o -newer "$stamp" -print -quit) &&
    [[ -z $changed ]]
}

setup_native() {
  native_ready && return
  setup_system
  local begun
  begun=$(mktemp)
  say 'building the native worker'
  bash native-worker/build.sh </dev/null >&2
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

# One setup at a time in a checkout. The lock is the script itself, so that nothing is left behind.
exec 9<setup.sh
flock 9
setup_node 9<&-
case $mode in
  node) ;;
  system) setup_system 9<&- ;;
  native | test) setup_native 9<&- ;;
  gen)
    setup_system 9<&-
    generate "$@"
    ;;
  run) ! needs_native "$@" || setup_native 9<&- ;;
  *) say "error: unknown mode $mode"; exit 2 ;;
esac
exec 9<&-

case $mode in
  run) exec node bin/meshnet.js "$@" ;;
  test) exec node test/run.ts "$@" ;;
esac
