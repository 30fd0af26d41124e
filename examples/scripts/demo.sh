#!/usr/bin/env bash
# A Llama-style model of 9.4 million parameters with four data-parallel ranks; CPUs are enough.
set -euo pipefail
NUM_NODES=${NUM_NODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-4}
source "$(dirname "${BASH_SOURCE[0]}")/launch.sh"

launch demo "$@"
