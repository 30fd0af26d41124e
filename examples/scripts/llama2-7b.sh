#!/usr/bin/env bash
# Llama 2 7B on one node: 8 data-parallel ranks with sharded optimizer states.
set -euo pipefail
NUM_NODES=${NUM_NODES:-1}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch llama2-7b "$@"
