#!/usr/bin/env bash
# Checks a build of the preset `cuda` on the first GPU of this machine: the tests labelled gpu, the recorded
# trajectory in fp32 and bf16, compute-sanitizer where it is, and a table of speed. At most 10 minutes; needs
# neither the network nor CMake. Without a GPU it says so and succeeds, having tested nothing.
#
#   tools/gpu_check.sh BUILD      BUILD holds `colonnade`, libexec/, gpu_tests.txt and the test binaries (target cuda_check), and
#                                 may hold lib/: shared libraries that this machine lacks
#
# Python with torch 2.11 (the project's .venv or the machine's) gives the libraries and, with transformers, the peer.
set -euo pipefail
build=$(realpath "${1:?usage: tools/gpu_check.sh BUILD}")
cd "$(dirname "$0")/.."
kLimit=590

if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
  echo "gpu_check: this machine has no GPU that nvidia-smi lists; nothing was tested"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
step() { printf '\n=== %s (after %d s)\n' "$1" "$SECONDS"; }
# Runs a command within what is left of the ten minutes and at most $1 seconds.
within() {
  local left=$((kLimit - SECONDS)) most=$1
  shift
  [ "$left" -gt 0 ] || { echo "gpu_check: no time left for: $*"; return 124; }
  timeout -k 10 $((left < most ? left : most)) "$@"
}
# Counts a failure and goes on.
judge() {
  local what=$1 code=0
  shift
  "$@" || code=$?
  [ "$code" = 0 ] && { echo "ok: $what"; return; }
  echo "FAILED (exit $code): $what"
  failed=$((failed + 1))
}

[ -d "$build/lib" ] && export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}  # a build from another machine

# The Python whose torch has CUDA; its libraries serve the program too, wherever the build was made.
python=
for candidate in .venv/bin/python python3 python; do
  if "$candidate" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then python=$candidate; break; fi
done
if [ -n "$python" ]; then
  libraries=$("$python" - <<'END'
import glob, os, torch
lib = os.path.join(os.path.dirname(torch.__file__), "lib")
print(":".join([lib] + glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "*", "lib"))))
END
  )
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
report_python=${python:-python3}

nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit --format=csv,noheader -i 0
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}

# Tests read their vectors where the sources lay when they were compiled.
source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")
if [ ! -e "$source" ]; then mkdir -p "$(dirname "$source")" && ln -s "$PWD" "$source"; fi

step "tests labelled gpu"
while read -r binary filter; do
  judge "$binary $filter" within 240 env COLONNADE_TEST_DEVICE=cuda "$build/$binary" --gtest_filter="$filter" --gtest_brief=1
done <"$build/gpu_tests.txt"

step "40 recorded steps through the program"
vectors=tests/vectors
recorded=(pretrain gpt --device cuda --log-interval 20
  --pretrained-checkpoint $vectors/trajectory/llama --data-path $vectors/indexed/gpt_uint16
  --data-cache-path "$work/cache" --split 1,0,0 --seed 1235 --seq-length 64 --tokenizer-type NullTokenizer
  --micro-batch-size 2 --global-batch-size 8 --train-iters 40 --lr 0.003 --min-lr 0.0003 --lr-decay-style cosine
  --lr-warmup-iters 5 --lr-decay-iters 40 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0
  --hidden-dropout 0 --attention-dropout 0 --eval-iters 0 --save-interval 1000)
# follows NAME CURVE KIND [MODEL]: the metrics of the run NAME against the recorded CURVE.
follows() {
  judge "curve, $1" "$report_python" tools/compare_curve.py "$work/$1/metrics.jsonl" \
    "$vectors/trajectory/${4:-llama}/$2.csv" "$3"
}
for kind in fp32 bf16; do
  flags=()
  [ "$kind" = bf16 ] && flags=(--bf16)
  judge "pretrain, $kind" within 60 "$build/colonnade" "${recorded[@]}" "${flags[@]}" --save "$work/$kind"
  follows $kind tp1 $kind
done
moe=(--pretrained-checkpoint $vectors/trajectory/moe --moe-aux-loss-coeff 0.01)
judge "pretrain, experts" within 60 "$build/colonnade" "${recorded[@]}" "${moe[@]}" --save "$work/moe"
follows moe tp1 fp32 moe

step "the same in fp32, ended after 20 steps and continued from its checkpoint"
judge "pretrain, steps 1 to 20" within 60 "$build/colonnade" "${recorded[@]}" --exit-interval 20 --save "$work/continued"
judge "pretrain --load, steps 21 to 40" within 60 "$build/colonnade" "${recorded[@]}" --load "$work/continued" \
  --save "$work/continued"
follows continued tp1 fp32

step "the same in four processes that share the GPU, over gloo"
judge "pretrain, tp 2 x pp 2" within 120 "$build/colonnade" launch --nproc-per-node 4 -- "${recorded[@]}" \
  --distributed-backend gloo --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --save "$work/tp2_pp2"
follows tp2_pp2 tp2_pp2 fp32
judge "pretrain, dp 2, distributed optimizer" within 120 "$build/colonnade" launch --nproc-per-node 2 -- "${recorded[@]}" \
  --distributed-backend gloo --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --save "$work/dp2_distopt"
follows dp2_distopt dp2_distopt fp32
judge "pretrain, cp 2" within 120 "$build/colonnade" launch --nproc-per-node 2 -- "${recorded[@]}" \
  --distributed-backend gloo --context-parallel-size 2 --save "$work/cp2"
follows cp2 tp1 fp32
judge "pretrain, ep 2" within 120 "$build/colonnade" launch --nproc-per-node 2 -- "${recorded[@]}" "${moe[@]}" \
  --distributed-backend gloo --expert-model-parallel-size 2 --save "$work/ep2"
follows ep2 ep2 fp32 moe

step "compute-sanitizer memcheck"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
ops=$(grep -o '^[^ ]*/ops_test' "$build/gpu_tests.txt")
if [ -n "$sanitizer" ]; then
  judge "memcheck of the kernels" within 120 env COLONNADE_TEST_DEVICE=cuda "$sanitizer" --tool memcheck --error-exitcode 9 \
    "$build/$ops" --gtest_filter='*GpuTwin*' --gtest_brief=1
else
  echo "compute-sanitizer is not here: not checked"
fi

step "speed: GPT-2 124M in bf16, sequences of 1024, micro-batch 16, no dropout"
mkdir "$work/gpt2"  # without --save the run folder is made where the program stands, and no checkpoint
judge "pretrain, GPT-2 124M" within 90 env -C "$work/gpt2" "$build/colonnade" pretrain gpt --device cuda --bf16 --mock-data --split 1,0,0 \
  --tokenizer-type NullTokenizer --vocab-size 50257 --num-layers 12 --hidden-size 768 --num-attention-heads 12 \
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 16 --global-batch-size 16 --train-iters 30 \
  --lr 1e-4 --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --hidden-dropout 0 --attention-dropout 0 \
  --eval-iters 0 --log-interval 10
# peer SECONDS NAME FLAGS...: a peer that cannot run here, or not in time, gets a row that says why.
peer() {
  local most=$1 name=$2 code=0 why
  shift 2
  within "$most" "$python" benchmarks/training/peer_gpt2.py "$@" >"$work/peer.json" 2>"$work/peer.log" || code=$?
  if [ "$code" = 0 ]; then cat "$work/peer.json"; return; fi
  why=$(tail -n 1 "$work/peer.log" | tr -dc '[:print:]' | tr -d '"\\')
  case $code in 124 | 137) why="not done within $most s, or the ten minutes were over" ;; esac
  printf '{"name": "transformers %s", "failed": "%s"}\n' "$name" "${why:-exit code $code}"
}
{
  "$report_python" benchmarks/training/rate.py "$work"/gpt2/runs/*/metrics.jsonl --skip 10 || true
  if [ -n "$python" ]; then
    peer 90 eager
    peer 150 torch.compile --compile
  else
    echo '{"name": "transformers", "failed": "no Python whose torch sees the GPU"}'
  fi
} >"$work/speed.jsonl"
"$report_python" benchmarks/training/table.py \
  "GPT-2 124M, bf16, 16 x 1024 tokens a step, $(nvidia-smi --query-gpu=name --format=csv,noheader -i 0)" <"$work/speed.jsonl"

printf '\n=== %d s, %d failed\n' "$SECONDS" "$failed"
[ "$failed" = 0 ]
