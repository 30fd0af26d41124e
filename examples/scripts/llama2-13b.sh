#!/usr/bin/env bash
# Llama 2 13B on one node: 2 tensor-parallel x 4 data-parallel ranks.
set -euo pipefail
NUM_NODES=${NUM_NODES:-1}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch llama2-13b "$@"
