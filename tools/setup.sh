#!/usr/bin/env bash
# Sets a machine up for Colonnade: Debian packages and the Python environment .venv with the pinned
# LibTorch. Installs only what is missing and says first what, how big and how long (at 10 MB/s).
#
#   tools/setup.sh          what a build needs
#   tools/setup.sh test     also what the tests need (torch for Python, tensorboard, transformers, Megatron Core, zsh, fish)
#   tools/setup.sh check    also clang-format and clang-tidy
#   tools/setup.sh fuzz     also Clang with its sanitizers
#   tools/setup.sh demo     also the text of the demo
#   tools/setup.sh bench    the same: its peers are those that speed is measured against
#
# Written for Debian 12; Ubuntu 24.04 has the same package names (untested there). x86-64, Python 3.11 or
# newer, root or sudo. Needs the network only for what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

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

# A stamp says that .venv was filled from a list to the end. The wheels of the list must be there in their versions, too.
is_current() { [ -e ".venv/$1.stamp" ] && [ -z "$(missing_wheels "$1")" ]; }

site() { echo .venv/lib/python3.*/site-packages; }

# The wheels of list $1 that are not installed in their version.
missing_wheels() {
  local line name folder
  folder=$(site)
  grep -E '^[A-Za-z]' "tools/requirements-$1.txt" | grep -v 'python_version <' | while read -r line; do
    line=${line%%;*}
    name=${line%%==*}
    [ -e "$folder/${name//-/_}-${line##*==}.dist-info/RECORD" ] || echo "$line"
  done
  if [ "$1" = build ] && [ ! -e "$folder/torch/lib/libtorch_cpu.so" ]; then echo libtorch_cpu.so; fi
}

# Installs list $1; the other words are pip's.
install_wheels() {
  local list=$1 half missing
  shift
  rm -f ".venv/$list.stamp"
  for half in "$(site)"/*.dist-info; do  # what an interrupted pip left would count as installed
    if [ ! -e "$half/RECORD" ]; then rm -rf "$half"; fi
  done
  .venv/bin/python -m pip install -q --disable-pip-version-check "$@" -r "tools/requirements-$list.txt"
  if [ -n "$(missing_wheels "$list")" ]; then  # pip believes its own notes, too
    .venv/bin/python -m pip install -q --disable-pip-version-check --force-reinstall --no-deps -r "tools/requirements-$list.txt"
  fi
  missing=$(missing_wheels "$list" | tr '\n' ' ')
  [ -z "$missing" ] || die "pip must install tools/requirements-$list.txt; got none of: $missing; remove .venv and try again"
  touch ".venv/$list.stamp"
}

# Why .venv cannot be used; nothing when it can. Its scripts name the folder that they were made in, in the first line or,
# where that is long, in the second.
venv_fault() {
  local version interpreter
  version=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2] if sys.version_info >= (3, 11) else "")' 2>/dev/null) || true
  if [ -z "$version" ]; then echo "its Python does not run or is older than 3.11"; return; fi
  if [ "$(echo .venv/lib/python3.*)" != ".venv/lib/python$version" ]; then echo "it was made for another Python than $version"; return; fi
  interpreter=$(sed -n -E '1s/^#!(\/.*\/python[0-9.]*)$/\1/p; 2s/^...exec. "?(\/[^"]*\/python[0-9.]*)"? .*/\1/p' .venv/bin/pip 2>/dev/null) || true
  if [ -z "$interpreter" ]; then echo "it has no pip"; return; fi
  if [ ! "$(dirname "$interpreter")" -ef .venv/bin ]; then echo "it was made in ${interpreter%/bin/*} and moved"; fi
}

make_venv() {
  local fault
  if [ -e .venv ] || [ -L .venv ]; then
    fault=$(venv_fault)
    [ -n "$fault" ] || return 0
    say "removing .venv: $fault"
    rm -rf .venv
  fi
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer is needed; got $(python3 --version); install a newer python3"
  say "making the Python environment .venv"
  python3 -m venv .venv
}

install_torch() {
  is_current build && return
  say "installing LibTorch 2.11.0, without GPU libraries, and Arrow 26.0.1 from PyPI wheels: 590 MB to get, 1.4 GB on disk, about 2 minutes"
  install_wheels build --no-deps
}

install_test_python() {
  if ! is_current test; then
    say "installing the Python packages of the tests: 60 MB to get, 300 MB on disk, about a minute"
    # pip names torch's GPU dependencies as missing: they are left out on purpose.
    install_wheels test 2> >(grep -vE "^torch 2.11.0 requires|^ERROR: pip's dependency resolver" >&2)
  fi
  # On another machine, or when libraries of CUDA went away, torch may need other stand-ins than before.
  .venv/bin/python tools/torch_stand_ins.py
}

install_peers() {
  is_current bench && return
  say "installing the peers of tests and benchmarks: 3 MB to get, some seconds"
  install_wheels bench --no-deps
}

main() {
  [ "$(uname -m)" = x86_64 ] || die "x86-64 is needed; got $(uname -m)"
  case "${1:-build}" in
    build) install_packages build; make_venv; install_torch ;;
    test | bench) install_packages build test; make_venv; install_torch; install_test_python; install_peers ;;
    check) install_packages build check; make_venv; install_torch ;;
    demo) install_packages build demo; make_venv; install_torch ;;
    fuzz) install_packages build fuzz; make_venv; install_torch ;;
    *) die "mode must be build, test, check, fuzz, demo or bench; got $1" ;;
  esac
}
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"  # a test reads the functions
