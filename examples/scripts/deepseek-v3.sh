#!/usr/bin/env bash
# DeepSeek-V3 on 128 nodes of H200 GPUs; recipes/deepseek-v3.yaml explains the layout.
set -euo pipefail
NUM_NODES=${NUM_NODES:-128}
HARDWARE=${HARDWARE:-h200}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch deepseek-v3 "$@"
