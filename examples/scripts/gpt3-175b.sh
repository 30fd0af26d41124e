#!/usr/bin/env bash
# GPT-3 175B on 16 nodes: 4 tensor-parallel x 8 pipeline x 4 data-parallel ranks.
set -euo pipefail
NUM_NODES=${NUM_NODES:-16}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch gpt3-175b "$@"
