#!/usr/bin/env bash
# `make bench`: training speed on this machine's CPU, fp32, three Llama shapes: our program, Megatron Core,
# Transformers and the floor F (benchmarks/training/floor.cpp), one after another, several rounds, one run. A mixture
# of experts is measured beside Transformers' Mixtral alone. Prints Markdown: tokens/s of the median step of all rounds, our ratio to each, and where our step's time goes.
#
#   benchmarks/run.sh BUILD [SHAPE...]    BUILD holds `colonnade`; SHAPE: 14m 124m-short 124m-long moe (all)
#
# THREADS (2), ROUNDS (3) and STEPS (8 counted steps a round) may be set in the environment. Only figures of one run
# may be compared, and only of a machine that does nothing else.
set -euo pipefail
build=$(realpath "${1:?usage: benchmarks/run.sh BUILD [SHAPE...]}")
shift
cd "$(dirname "$0")/.."
shapes=("$@")
[ "${#shapes[@]}" -gt 0 ] || shapes=(14m 124m-short 124m-long moe)
threads=${THREADS:-2} rounds=${ROUNDS:-3} steps=${STEPS:-8} warmup=2
export OMP_NUM_THREADS=$threads MKL_NUM_THREADS=$threads PYTHONWARNINGS=ignore
python=$PWD/.venv/bin/python
root=$PWD/benchmarks/training
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# layers hidden heads ffn seq vocab micro-batch experts
sizes_of() {
  case $1 in
    14m) echo 6 384 6 1024 256 8192 8 0 ;;
    124m-short) echo 12 768 12 2048 64 50304 4 0 ;;
    124m-long) echo 12 768 12 2048 1024 50304 1 0 ;;
    moe) echo 4 512 8 1024 256 8192 4 8 ;;
    *) echo "run.sh: SHAPE must be 14m, 124m-short, 124m-long or moe; got $1" >&2; return 2 ;;
  esac
}

# Writes metrics.jsonl and report.html into a new folder and prints our JSON line.
ours() {
  local run="$work/run.$1" mixture=()
  [ "$experts" = 0 ] || mixture=(--num-experts "$experts" --moe-router-topk 2)
  rm -rf "$run" && mkdir "$run"
  (cd "$run" && "$build/colonnade" pretrain gpt --mock-data --split 1,0,0 --tokenizer-type NullTokenizer --swiglu \
    --normalization RMSNorm --disable-bias-linear --position-embedding-type rope \
    --untie-embeddings-and-output-weights --num-layers "$layers" --hidden-size "$hidden" \
    --num-attention-heads "$heads" --ffn-hidden-size "$ffn" --seq-length "$seq" --max-position-embeddings 1024 \
    --vocab-size "$vocab" --micro-batch-size "$batch" --global-batch-size "$batch" --train-iters $((warmup + steps)) \
    --lr 1e-4 --lr-decay-style constant --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --hidden-dropout 0 \
    --attention-dropout 0 --eval-iters 0 "${mixture[@]}" --tensorboard-log-interval 1000000 >log 2>&1) || { tail -n 5 "$run/log" >&2; return 1; }
  cp -r "$run"/runs/*/. "$run/"
  "$python" "$root/rate.py" "$run/metrics.jsonl" --skip $warmup
}

# A program that fails gets a row that says why.
result() {
  local name=$1
  shift
  "$@" 2>"$work/error" | grep '^{' ||
    printf '{"name": "%s", "failed": "%s"}\n' "$name" "$(tail -n 1 "$work/error" | tr -d '"\\' | cut -c1-200)"
}

printf '# Training speed, CPU, fp32, %s threads, %s rounds of %s steps\n\n' "$threads" "$rounds" "$steps"
printf -- '- %s; %s cores; load %s\n' "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(cut -d' ' -f1-3 /proc/loadavg)"
printf -- '- instructions: %s\n' "$(grep -o -w -E 'avx2|avx512f|avx512_bf16|amx_bf16' /proc/cpuinfo | sort -u | tr '\n' ' ')"
printf -- '- commit %s; %s\n' "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$(date -u +%F)"

for shape in "${shapes[@]}"; do
  read -r layers hidden heads ffn seq vocab batch experts <<<"$(sizes_of "$shape")"
  flags=(--layers "$layers" --hidden "$hidden" --heads "$heads" --kv-heads "$heads" --ffn "$ffn" --seq "$seq"
         --vocab "$vocab" --micro-batch "$batch" --steps "$steps")
  : >"$work/$shape.jsonl"
  for ((round = 0; round < rounds; ++round)); do
    {
      result colonnade ours "$shape"
      result transformers "$python" "$root/peer.py" transformers "${flags[@]}" --warmup $warmup --experts "$experts"
      [ "$experts" = 0 ] || continue
      result megatron "$python" "$root/peer.py" megatron "${flags[@]}" --warmup $warmup
      result "floor F" "$build/benchmarks/training/floor" "${flags[@]}"
    } >>"$work/$shape.jsonl"
  done
  "$python" "$root/table.py" "## $shape: $layers layers, hidden $hidden, $seq x $batch tokens, vocabulary $vocab$([ "$experts" = 0 ] || echo ", $experts experts, 2 a token")" <"$work/$shape.jsonl"
  "$python" "$root/phases.py" "$work/run.$shape/report.html"
done
rm -f "$work/moe.jsonl"  # the means are those of the dense shapes
dense=("$work"/*.jsonl)
[ ! -e "${dense[0]}" ] || "$python" "$root/table.py" --summary "${dense[@]}"
