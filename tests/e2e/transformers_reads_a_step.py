"""The real Transformers opens a step folder as it is and gives the logits that we give.

usage: transformers_reads_a_step.py COLONNADE SCRATCH
Trains a small Llama-style model for two steps on two ranks, evaluates it with `colonnade evaluate
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

run = scratch / "run"
settings = """gpt --num-layers 2 --hidden-size 64 --ffn-hidden-size 160 --num-attention-heads 4 --group-query-attention
--num-query-groups 2 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --train-iters 2
--lr 1e-2 --mock-data --tokenizer-type NullTokenizer --vocab-size 331 --position-embedding-type rope --swiglu
--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0
--attention-dropout 0 --tensor-model-parallel-size 2""".split()
subprocess.run([colonnade, "launch", "--nproc-per-node", "2", "--log-dir", scratch / "logs", "--", "pretrain", *settings,
                "--save", run, "--save-interval", "2"], check=True)
step = run / "checkpoints" / "step_00000002"

tokens = torch.arange(2 * 32).reshape(2, 32).remainder(331).to(torch.int64)
save_file({"input_ids": tokens}, scratch / "tokens.safetensors")
subprocess.run([colonnade, "evaluate", "--load", run, "--tokens", scratch / "tokens.safetensors",
                "--logits-out", scratch / "logits.safetensors"], check=True)
ours = load_file(scratch / "logits.safetensors")["logits"]

model, loading = AutoModelForCausalLM.from_pretrained(step, output_loading_info=True)
assert not loading["missing_keys"] and not loading["unexpected_keys"], loading
with torch.no_grad():
    theirs = model.float()(input_ids=tokens).logits
worst = (ours - theirs).abs().max().item()
print(f"logits {tuple(ours.shape)}: largest difference {worst:.2e}")
assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
assert torch.allclose(ours, theirs, atol=2e-5, rtol=1e-4), worst
