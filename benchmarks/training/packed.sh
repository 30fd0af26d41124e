#!/usr/bin/env bash
# Speed of packed rows: log-normal document lengths (median 300, at most 4,096 tokens), rows of 4,096 tokens, a GPT of
# hidden size 512, one rank, fp32. Prints real tokens/s of packed rows with document bounds and of padded rows, which
# hold one document each and cost as much as any full row; with another build, its packed rows too.
#
#   benchmarks/training/packed.sh BUILD [OTHER_BUILD]
set -euo pipefail
build=$(realpath "${1:?usage: benchmarks/training/packed.sh BUILD [OTHER_BUILD]}")
other=${2:+$(realpath "$2")}
cd "$(dirname "$0")/../.."
python=$PWD/.venv/bin/python rounds=${ROUNDS:-2} steps=${STEPS:-6} warmup=2
export OMP_NUM_THREADS=${THREADS:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" - "$work" <<'PYTHON'
import json, math, pathlib, random, sys
random.seed(1)
folder, lengths = pathlib.Path(sys.argv[1]), []
with open(folder / "texts.jsonl", "w") as out:
    for _ in range(2000):
        lengths.append(max(2, min(4096, round(random.lognormvariate(math.log(300), 1)))))
        text = " ".join(str(random.randrange(8000)) for _ in range(lengths[-1] - 1))
        out.write(json.dumps({"text": text}) + "\n")
(folder / "mean").write_text(str(sum(lengths) / len(lengths)))
PYTHON
"$build/colonnade" preprocess --input "$work/texts.jsonl" --output-prefix "$work/texts" --tokenizer-type NullTokenizer \
  --vocab-size 8192 --append-eod >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; exit 1; }

# Milliseconds of the median step of a build with some flags.
step() {
  local run="$work/run"
  rm -rf "$run" && mkdir "$run"
  (cd "$run" && "$1/colonnade" pretrain gpt --data-path "$work/texts_text_document" --split 1,0,0 --tokenizer-type NullTokenizer \
    --vocab-size 8192 --num-layers 4 --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 1536 --swiglu \
    --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights \
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 1 \
    --train-iters $((warmup + steps)) --lr 1e-4 --lr-decay-style constant --hidden-dropout 0 --attention-dropout 0 \
    --eval-iters 0 --tensorboard-log-interval 1000000 "${@:2}" >log 2>&1) || { tail -n 5 "$run/log" >&2; return 1; }
  "$python" - "$run" "$warmup" <<'PYTHON'
import json, pathlib, statistics, sys
lines = [json.loads(line) for file in pathlib.Path(sys.argv[1]).rglob("metrics.jsonl") for line in open(file)]
times = [line["step_ms"] for line in lines if "step_ms" in line]
print(statistics.median(times[int(sys.argv[2]):]))
PYTHON
}

packed=(--reset-position-ids --reset-attention-mask)
for _ in $(seq "$rounds"); do
  step "$build" "${packed[@]}" >>"$work/bounds"
  step "$build" >>"$work/padded"
  [ -z "$other" ] || step "$other" "${packed[@]}" >>"$work/other"
done
"$python" - "$work" <<'PYTHON'
import pathlib, statistics, sys
folder = pathlib.Path(sys.argv[1])
mean = float((folder / "mean").read_text())
def rate(name, tokens):
    times = [float(x) for x in (folder / name).read_text().split()]
    return tokens / statistics.median(times) * 1000
bounds, padded = rate("bounds", 4096), rate("padded", mean)
print(f"mean length {mean:.0f}\npacked rows with document bounds: {bounds:.0f} tokens/s")
print(f"padded rows: {padded:.0f} real tokens/s; packed / padded {bounds / padded:.2f}")
if (folder / "other").exists():
    other = rate("other", 4096)
    print(f"packed rows of the other build: {other:.0f} tokens/s; ratio {bounds / other:.2f}")
PYTHON
