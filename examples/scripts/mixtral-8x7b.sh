#!/usr/bin/env bash
# Mixtral 8x7B on 8 nodes: 4 pipeline x 16 data-parallel ranks, 8 of which hold one expert each.
set -euo pipefail
NUM_NODES=${NUM_NODES:-8}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch mixtral-8x7b "$@"
