# shellcheck shell=bash
# Trains a recipe with one rank per GPU; the scripts of this folder source this file.
# docs/guide/recipes.md explains the variables.
RECIPES=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../recipes" && pwd)

# launch RECIPE FLAGS...: trains recipes/RECIPE.yaml, or plans it with PLAN=1. FLAGS override the recipe.
launch() {
  local recipe=$1
  shift
  local nodes=${NUM_NODES:-1} gpus=${GPUS_PER_NODE:-8} run=${RUN_DIR:-runs/$recipe}
  local config=(--config "$RECIPES/$recipe.yaml")

  if [ "${PLAN:-0}" = 1 ]; then
    exec colonnade plan --world-size $((nodes * gpus)) --hardware "${HARDWARE:-h100}" "${config[@]}" "$@"
  fi

  local data
  if [ -n "${DATA_PATH:-}" ]; then
    read -ra data <<<"$DATA_PATH"  # one prefix, or weights and prefixes
    # --load with the folder of --save: the same command starts and resumes the run.
    data=(--data-path "${data[@]}" --save "$run" --load "$run")
  else
    echo "DATA_PATH is not set: a trial of 20 steps on mock data, without checkpoints" >&2
    data=(--mock-data --train-iters 20 --lr-warmup-iters 2 --eval-iters 0)
  fi
  if [ -n "${TOKENIZER_MODEL:-}" ]; then
    data+=(--tokenizer-type "${TOKENIZER_TYPE:-HuggingFaceTokenizer}" --tokenizer-model "$TOKENIZER_MODEL")
  fi

  local rendezvous=()  # a single node needs none
  if [ "$nodes" -gt 1 ]; then
    rendezvous=(--nnodes "$nodes" --node-rank "${NODE_RANK:?must be set: number of this node, from 0}"
      --master-addr "${MASTER_ADDR:?must be set: host name of node 0}" --master-port "${MASTER_PORT:-29500}")
  fi
  exec colonnade launch --nproc-per-node "$gpus" "${rendezvous[@]}" -- \
    pretrain gpt "${config[@]}" "${data[@]}" "$@"
}
