#!/usr/bin/env bash
# Llama 3 405B on 128 nodes: 8 tensor-parallel x 8 pipeline x 2 context-parallel x 8 data-parallel ranks.
set -euo pipefail
NUM_NODES=${NUM_NODES:-128}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch llama3-405b "$@"
