#!/usr/bin/env bash
# Qwen3 235B-A22B on 32 nodes: 4 tensor-parallel x 16 pipeline x 4 data-parallel ranks; 8 expert-parallel ranks.
set -euo pipefail
NUM_NODES=${NUM_NODES:-32}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch qwen3-235b-a22b "$@"
