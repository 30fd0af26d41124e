#!/usr/bin/env bash
# Mixtral 8x22B on 16 nodes: 2 tensor-parallel x 8 pipeline x 8 data-parallel ranks; 8 expert-parallel ranks.
set -euo pipefail
NUM_NODES=${NUM_NODES:-16}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch mixtral-8x22b "$@"
