"""The real Transformers opens a step folder as it is and gives the logits that we give.

usage: transformers_reads_a_step.py COLONNADE SCRATCH
For each family trains a small model for two steps on two ranks, evaluates it with `colonnade evaluate
--logits-out`, loads the same folder with AutoModelForCausalLM and compares in fp32.
"""
import os
import pathlib
import shutil
import subprocess
import sys

colonnade, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

SETTINGS = """gpt --num-layers 2 --hidden-size 64 --ffn-hidden-size 160 --num-attention-heads 4 --group-query-attention
--num-query-groups 2 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --train-iters 2
--lr 1e-2 --mock-data --tokenizer-type NullTokenizer --vocab-size 331 --position-embedding-type rope --swiglu
--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0
--attention-dropout 0"""
FAMILIES = {
    "LlamaForCausalLM": "--tensor-model-parallel-size 2",
    "Qwen2ForCausalLM": "--tensor-model-parallel-size 2 --add-qkv-bias",
    "Qwen3ForCausalLM": "--pipeline-model-parallel-size 2 --qk-layernorm --kv-channels 24",
    "MixtralForCausalLM": "--expert-model-parallel-size 2 --num-experts 4 --moe-ffn-hidden-size 80 --window-size 7,0",
    "Qwen3MoeForCausalLM": """--expert-model-parallel-size 2 --num-experts 8 --moe-router-topk 3 --qk-layernorm
        --moe-layer-freq [0,1] --moe-ffn-hidden-size 80 --moe-router-pre-softmax""",
}
tokens = torch.arange(2 * 32).reshape(2, 32).remainder(331).to(torch.int64)
save_file({"input_ids": tokens}, scratch / "tokens.safetensors")

for architecture, flags in FAMILIES.items():
    run, logits = scratch / architecture, scratch / f"{architecture}.safetensors"
    subprocess.run([colonnade, "launch", "--nproc-per-node", "2", "--log-dir", scratch / "logs", "--", "pretrain",
                    *SETTINGS.split(), *flags.split(), "--save", run, "--save-interval", "2"], check=True)
    subprocess.run([colonnade, "evaluate", "--load", run, "--tokens", scratch / "tokens.safetensors",
                    "--logits-out", logits], check=True)
    ours = load_file(logits)["logits"]

    model, loading = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step_00000002",
                                                          output_loading_info=True)
    assert type(model).__name__ == architecture, type(model)
    assert not loading["missing_keys"] and not loading["unexpected_keys"], loading
    with torch.no_grad():
        theirs = model.float()(input_ids=tokens).logits
    worst = (ours - theirs).abs().max().item()
    print(f"{architecture}: logits {tuple(ours.shape)}, largest difference {worst:.2e}")
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    assert torch.allclose(ours, theirs, atol=2e-5, rtol=1e-4), worst
