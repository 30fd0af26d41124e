#!/usr/bin/env bash
# Llama 3 70B on 8 nodes: 4 tensor-parallel x 4 pipeline x 2 context-parallel x 2 data-parallel ranks.
set -euo pipefail
NUM_NODES=${NUM_NODES:-8}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch llama3-70b "$@"
