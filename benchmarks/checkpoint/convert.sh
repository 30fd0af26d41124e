#!/usr/bin/env bash
# Times `colonnade convert` against `cp` on the same disk: hf -> native, hf -> megatron, native -> hf, with peak memory.
#
#   benchmarks/checkpoint/convert.sh BUILD [SIZE] [FOLDER]     SIZE: 8b (16 GB, default), 3b or 1b; FOLDER: scratch
#
# The model has the shape of Llama 3 8B, Llama 3.2 3B or 1B (untied) with random bf16 weights. Each copy is synced, as a conversion
# is. Needs Python with torch and safetensors (tools/setup.sh test) and six times the model's size on the disk.
set -euo pipefail
build=${1:?usage: convert.sh BUILD [SIZE] [FOLDER]}
size=${2:-8b}
work=${3:-$(mktemp -d)}
cd "$(dirname "$0")/../.."
mkdir -p "$work"
trap 'rm -rf "$work"/{hf,cp,native,megatron,back}' EXIT

.venv/bin/python - "$size" "$work/hf" <<'END'
import json, pathlib, sys
import torch
from safetensors.torch import save_file
layers, hidden, ffn, heads = {"8b": (32, 4096, 14336, 32), "3b": (28, 3072, 8192, 24), "1b": (16, 2048, 8192, 32)}[sys.argv[1]]
folder = pathlib.Path(sys.argv[2])
folder.mkdir(parents=True)
vocabulary, groups, head = 128256, 8, hidden // heads
config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden,
          "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": groups,
          "head_dim": head, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
          "tie_word_embeddings": False, "torch_dtype": "bfloat16", "attention_bias": False, "mlp_bias": False, "hidden_act": "silu"}
(folder / "config.json").write_text(json.dumps(config))
shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (vocabulary, hidden)}
for i in range(layers):
    p = f"model.layers.{i}."
    shapes |= {p + "input_layernorm.weight": (hidden,), p + "post_attention_layernorm.weight": (hidden,),
               p + "self_attn.q_proj.weight": (heads * head, hidden), p + "self_attn.k_proj.weight": (groups * head, hidden),
               p + "self_attn.v_proj.weight": (groups * head, hidden), p + "self_attn.o_proj.weight": (hidden, heads * head),
               p + "mlp.gate_proj.weight": (ffn, hidden), p + "mlp.up_proj.weight": (ffn, hidden), p + "mlp.down_proj.weight": (hidden, ffn)}
generator = torch.Generator().manual_seed(1)
shard, held, index, number = {}, 0, {}, 0


def flush():
    global shard, held, number
    number += 1
    save_file(shard, folder / f"model-{number:05}.safetensors", metadata={"format": "pt"})
    index.update(dict.fromkeys(shard, f"model-{number:05}.safetensors"))
    shard, held = {}, 0


for name, shape in shapes.items():
    tensor = torch.randint(-3000, 3000, shape, dtype=torch.int16, generator=generator).view(torch.bfloat16)
    shard[name] = tensor
    held += tensor.nbytes
    if held > 4e9:
        flush()
flush()
(folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
END

sync
bytes=$(du -sb "$work/hf" | cut -f1)
timed() {  # timed NAME COMMAND...: seconds and peak memory, with the file system synced
  local name=$1
  shift
  /usr/bin/time -f '%e %M' -o "$work/time" sh -c '"$@" >/dev/null && sync' _ "$@"
  read -r seconds memory <"$work/time"
  [ "$name" != cp ] || reference=$seconds
  awk -v n="$name" -v s="$seconds" -v m="$memory" -v b="$bytes" -v r="$reference" \
    'BEGIN { printf "| %s | %.1f | %.0f | %.2f | %.0f |\n", n, s, b / s / 1e6, s / r, m / 1024 }'
}
echo "| what, $size, $(awk -v b="$bytes" 'BEGIN { printf "%.1f GB", b / 1e9 }') | s | MB/s | of cp | peak MB |"
echo "|---|---|---|---|---|"
timed cp cp -r "$work/hf" "$work/cp"
rm -rf "$work/cp"
timed "hf to native" "$build/colonnade" convert --from "hf:$work/hf" --to "native:$work/native"
timed "hf to megatron" "$build/colonnade" convert --from "hf:$work/hf" --to "megatron:$work/megatron"
timed "native to hf" "$build/colonnade" convert --from "native:$work/native" --to "hf:$work/back"
