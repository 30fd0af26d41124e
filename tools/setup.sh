#!/usr/bin/env bash
# Sets a machine up for Colonnade: Debian packages and the Python environment .venv with the pinned
# LibTorch. Installs only what is missing and says first what, how big and how long (at 10 MB/s).
#
#   tools/setup.sh          what a build needs
#   tools/setup.sh test     also what the tests need (torch for Python, tensorboard, transformers, zsh, fish)
#   tools/setup.sh check    also clang-format and clang-tidy
#   tools/setup.sh fuzz     also Clang with its sanitizers
#   tools/setup.sh demo     also the text of the demo
#   tools/setup.sh bench    what tests need, and the peers that speed is measured against
#
# Written for Debian 12; Ubuntu 24.04 has the same package names (untested there). x86-64, Python 3.11 or
# newer, root or sudo. Needs the network only for what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "packages must be installed as root; got user $(id -un) without sudo; run as root: $*"
  fi
}

# The packages of the groups in $@ that are not installed.
missing_packages() {
  local group package
  for group in "$@"; do
    for package in $(sed -n "s/^$group //p" tools/packages.txt); do
      dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
  done
}

install_packages() {
  local missing size
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" = 0 ] && return
  command -v apt-get >/dev/null || die "these packages are needed: ${missing[*]}; got no apt-get; install them by hand"
  as_root apt-get update -qq
  size=$(LC_ALL=C apt-get install --no-install-recommends --assume-no "${missing[@]}" 2>/dev/null |
         grep -E '^Need to get|^After this operation' | tr '\n' ' ' || true)
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  say "${size:-size unknown} A few seconds for each 10 MB."
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# A stamp says which list of requirements .venv was last filled from.
stamp_of() { sha256sum "$1" tools/torch_stand_ins.py 2>/dev/null | sha256sum | cut -d' ' -f1; }
is_current() { [ "$(cat ".venv/$1.stamp" 2>/dev/null)" = "$(stamp_of "tools/requirements-$1.txt")" ]; }
set_current() { stamp_of "tools/requirements-$1.txt" >".venv/$1.stamp"; }

make_venv() {
  [ -x .venv/bin/python ] && [ -x .venv/bin/pip ] && return
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer is needed; got $(python3 --version); install a newer python3"
  say "making the Python environment .venv"
  python3 -m venv .venv
}

install_torch() {
  is_current build && return
  say "installing LibTorch 2.11.0, without GPU libraries, and Arrow 26.0.1 from PyPI wheels: 590 MB to get, 1.4 GB on disk, about 2 minutes"
  .venv/bin/pip install -q --disable-pip-version-check --no-deps -r tools/requirements-build.txt
  set_current build
}

install_test_python() {
  is_current test && return
  say "installing the Python packages of the tests: 60 MB to get, 300 MB on disk, about a minute"
  # pip names torch's GPU dependencies as missing: they are left out on purpose.
  .venv/bin/pip install -q --disable-pip-version-check -r tools/requirements-test.txt 2> >(grep -v '^torch 2.11.0 requires' >&2)
  .venv/bin/python tools/torch_stand_ins.py
  set_current test
}

install_bench_python() {
  is_current bench && return
  say "installing the peers of the benchmarks: 3 MB to get, some seconds"
  .venv/bin/pip install -q --disable-pip-version-check --no-deps -r tools/requirements-bench.txt
  set_current bench
}

main() {
  [ "$(uname -m)" = x86_64 ] || die "x86-64 is needed; got $(uname -m)"
  case "${1:-build}" in
    build) install_packages build; make_venv; install_torch ;;
    test) install_packages build test; make_venv; install_torch; install_test_python ;;
    check) install_packages build check; make_venv; install_torch ;;
    demo) install_packages build demo; make_venv; install_torch ;;
    fuzz) install_packages build fuzz; make_venv; install_torch ;;
    bench) install_packages build test; make_venv; install_torch; install_test_python; install_bench_python ;;
    *) die "mode must be build, test, check, fuzz, demo or bench; got $1" ;;
  esac
}
main "$@"
