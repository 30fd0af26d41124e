#!/usr/bin/env bash
# Llama 3 8B on one node: 2 context-parallel x 4 data-parallel ranks with sharded gradients.
set -euo pipefail
NUM_NODES=${NUM_NODES:-1}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch llama3-8b "$@"
