#!/usr/bin/env bash
# Proves that the two commands work on a fresh machine: makes a bare Debian 12 in a chroot (no compiler, no
# CUDA, no Python packages), clones the last commit into it, and runs a verb there.
#
#   tools/prove_fresh_machine.sh [FOLDER] [VERB]     default: a new temporary folder, demo
#
# Needs root, debootstrap, 10 GB of disk and the network; takes what the verb takes and 15 minutes for the
# set-up and build on 2 cores. The chroot is left behind for a look; remove it with rm -rf.
set -euo pipefail
cd "$(dirname "$0")/.."
root=${1:-$(mktemp -d /tmp/colonnade-fresh.XXXX)}
verb=${2:-demo}
[ "$(id -u)" = 0 ] || { echo "prove: chroot needs root; got user $(id -un); run it with sudo" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "prove: debootstrap is needed; run \`apt-get install debootstrap\`" >&2; exit 1; }

say() { printf 'prove: %s\n' "$*"; }
unmount() {
  for folder in proc dev/shm dev/pts dev; do umount "$root/$folder" 2>/dev/null || true; done
}
trap unmount EXIT

if [ ! -x "$root/bin/bash" ]; then
  say "making a bare Debian 12 in $root"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$root.log" 2>&1
fi
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
  if [ -e "$file" ]; then cp -L "$file" "$root$file"; fi
done
cp -rL /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
rm -rf "$root"/etc/apt/sources.list*
cp -rL /etc/apt/sources.list* "$root/etc/apt/"
# Certificates that this machine trusts beyond Debian's, for a mirror behind a proxy.
cp -rL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
chroot "$root" update-ca-certificates >/dev/null
mount --bind /dev "$root/dev"
mount --bind /dev/pts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"

# `make` is the one tool that must be there before the first verb; git archives the commit from outside.
chroot "$root" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends make >/dev/null'
rm -rf "$root/root/colonnade"
mkdir -p "$root/root/colonnade"
git archive HEAD | tar -x -C "$root/root/colonnade"
say "running make $verb"
chroot "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
  make -C /root/colonnade "$verb"
say "make $verb passed on a fresh machine"
