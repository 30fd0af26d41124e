#!/usr/bin/env bash
# Start-up time: from exec to the end of the first optimizer step of the 14M model of benchmarks/run.sh, one rank, CPU,
# minus the time of the step. Median of several cold processes with warm files.
#
#   benchmarks/training/startup.sh BUILD [RUNS]     BUILD holds `colonnade`
set -euo pipefail
build=$(realpath "${1:?usage: benchmarks/training/startup.sh BUILD [RUNS]}")
runs=${2:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

flags=(--mock-data --split 1,0,0 --tokenizer-type NullTokenizer --swiglu --normalization RMSNorm --disable-bias-linear
  --position-embedding-type rope --untie-embeddings-and-output-weights --num-layers 6 --hidden-size 384
  --num-attention-heads 6 --ffn-hidden-size 1024 --seq-length "${SEQ:-256}" --max-position-embeddings 1024
  --vocab-size 8192 --micro-batch-size "${BATCH:-8}" --global-batch-size "${BATCH:-8}" --lr 1e-4 --clip-grad 1.0
  --hidden-dropout 0 --attention-dropout 0 --eval-iters 0)

# Milliseconds until the single step was written to metrics.jsonl, and milliseconds of the step.
first_step() {
  local begin end step
  rm -rf runs
  begin=$(date +%s%N)
  "$build/colonnade" pretrain gpt "${flags[@]}" --train-iters 1 >log 2>&1 || { cat log >&2; return 1; }
  end=$(date +%s%N -r runs/*/metrics.jsonl)
  step=$(sed -n '1s/.*"step_ms":\([0-9]*\).*/\1/p' runs/*/metrics.jsonl)
  echo "$(((end - begin) / 1000000)) $step"
}

for ((i = 0; i < runs; ++i)); do first_step; done | sort -n | awk '
  { total[NR] = $1; step[NR] = $2 }
  END {
    m = int((NR + 1) / 2)
    printf "exec to the end of the first step: %d ms, of which the step itself %d ms, start-up %d ms (median of %d; best %d)\n",
      total[m], step[m], total[m] - step[m], NR, total[1]
  }'
