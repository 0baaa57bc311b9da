#!/usr/bin/env bash
# Makes bench/reference/.venv from requirements.txt, and does nothing when it is there already.
#
#   bench/reference/setup.sh          PYTHON=python3.12 names another interpreter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# What the locked packages ask for, and take up.
minimum=3.11
need_mib=5900

say() { echo "reference: $*" >&2; }
die() { say "error: $*"; exit 1; }

new_enough() { "$1" -c "import sys; sys.exit(sys.version_info < (${minimum/./, }))" 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if type -P "$candidate" >/dev/null && new_enough "$candidate"; then
      type -P "$candidate"
      return
    fi
  done
  die "no Python of at least $minimum (looked for ${PYTHON:-python3, python3.13, python3.12, python3.11}; PYTHON=/path/to/python names one)"
}

# Debian packs venv apart from Python.
ensure_venv() {
  ! "$1" -c 'import ensurepip, venv' 2>/dev/null || return 0
  local version package
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  package=python$version-venv
  if [[ $EUID -ne 0 ]] || ! type -P apt-get >/dev/null; then
    say "error: $1 cannot make virtual environments"
    die "next: apt-get install $package"
  fi
  say "installing $package"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -q -y --no-install-recommends "$package"; } </dev/null >&2
}

# One at a time in a checkout. The lock is this script itself, so that nothing is left behind.
exec 9<setup.sh
flock 9

stamp=.venv/requirements.sha256
lock=$(sha256sum requirements.txt)
if [[ -f $stamp && $(<"$stamp") == "$lock" ]] && .venv/bin/python -c '' 2>/dev/null; then
  say '.venv is what requirements.txt asks for'
  exit 0
fi

[[ $(uname -sm) == 'Linux x86_64' ]] || die "the lock is for Linux on x86_64, this is $(uname -sm)"
python=$(find_python)
ensure_venv "$python"
rm -rf .venv
free_mib=$(df -Pm . | awk 'NR == 2 { print $4 }')
((free_mib >= need_mib)) || die "needs $need_mib MiB of disk, $PWD has $free_mib"

say "making $PWD/.venv with $("$python" --version): PyTorch and Transformers, 5.6 GB of disk, a few minutes"
trap 'rm -rf .venv' EXIT
"$python" -m venv .venv
.venv/bin/python -m pip install --require-hashes --only-binary=:all: --no-cache-dir --disable-pip-version-check \
  --progress-bar off --quiet --requirement requirements.txt </dev/null >&2
versions=$(.venv/bin/python -c 'import gguf, safetensors, torch, transformers; print(f"torch {torch.__version__}, transformers {transformers.__version__}")')
echo "$lock" >"$stamp"
trap - EXIT
say "ready: $versions"
