"""The real Transformers opens a step folder as it is and gives the logits that we give.

usage: transformers_reads_a_step.py COLONNADE SCRATCH
For each family trains a small model for two steps on two ranks, evaluates it with `colonnade evaluate
--logits-out`, loads the same folder with Transformers and compares in fp32.
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
from transformers import AutoModelForCausalLM, BertForMaskedLM, BertForPreTraining, T5ForConditionalGeneration

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
ENCODER = """t5 --encoder-num-layers 2 --num-layers 2 --hidden-size 64 --ffn-hidden-size 160 --num-attention-heads 4
--kv-channels 24 --query-pre-attn-scalar 1 --seq-length 32 --decoder-seq-length 16 --micro-batch-size 2
--global-batch-size 4 --train-iters 2 --lr 1e-2 --mock-data --tokenizer-type NullTokenizer --vocab-size 331
--vocab-extra-ids 31 --position-embedding-type relative --activation geglu-tanh --normalization RMSNorm
--norm-epsilon 1e-6 --disable-bias-linear --no-output-layer-bias --hidden-dropout 0 --attention-dropout 0
--pipeline-model-parallel-size 2"""

BERT = """bert --num-layers 2 --hidden-size 64 --ffn-hidden-size 160 --num-attention-heads 4 --seq-length 32
--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --train-iters 2 --lr 1e-2 --mock-data
--tokenizer-type NullTokenizer --vocab-size 331 --apply-residual-connection-post-layernorm --activation gelu
--norm-epsilon 1e-12 --num-tokentypes 2 --tensor-model-parallel-size 2 --sequence-parallel"""


# The others go on from their recorded folders: sizes, switches and dropout are those of config.json.
FOLDERS = {
    "MistralForCausalLM": "mistral",
    "GptOssForCausalLM": "gpt_oss",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "GPT2LMHeadModel": "gpt2",
}
FROM_FOLDER = """gpt --seq-length 32 --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 1e-3 --mock-data
--tokenizer-type NullTokenizer"""


def train_and_evaluate(name, settings, tokens):
    """The step folder, and the logits that we give for the tensors of `tokens`."""
    run, file, logits = scratch / name, scratch / f"{name}.tokens", scratch / f"{name}.safetensors"
    save_file(tokens, file)
    subprocess.run([colonnade, "launch", "--nproc-per-node", "2", "--log-dir", scratch / "logs", "--", "pretrain",
                    *settings, "--save", run, "--save-interval", "2"], check=True)
    subprocess.run([colonnade, "evaluate", "--load", run, "--tokens", file, "--logits-out", logits], check=True)
    return run / "checkpoints" / "step_00000002", load_file(logits)["logits"]


def compare(architecture, kind, step, ours, **inputs):
    model, loading = kind.from_pretrained(step, output_loading_info=True)
    assert type(model).__name__ == architecture, type(model)
    assert not loading["missing_keys"] and not loading["unexpected_keys"], loading
    with torch.no_grad():
        given = model.float()(**inputs)
    theirs = given.prediction_logits if architecture == "BertForPreTraining" else given.logits
    worst = (ours - theirs).abs().max().item()
    print(f"{architecture}: logits {tuple(ours.shape)}, largest difference {worst:.2e}")
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    assert torch.allclose(ours, theirs, atol=2e-5, rtol=1e-4), worst


tokens = torch.arange(2 * 32).reshape(2, 32).remainder(331).to(torch.int64)
for architecture, flags in FAMILIES.items():
    step, ours = train_and_evaluate(architecture, SETTINGS.split() + flags.split(), {"input_ids": tokens})
    compare(architecture, AutoModelForCausalLM, step, ours, input_ids=tokens)

vectors = pathlib.Path(os.environ.get("COLONNADE_VECTORS") or pathlib.Path(__file__).resolve().parent.parent / "vectors") / "hf"
small = tokens.remainder(320)
for architecture, folder in FOLDERS.items():
    settings = FROM_FOLDER.split() + ["--pretrained-checkpoint", str(vectors / folder)]
    step, ours = train_and_evaluate(architecture, settings, {"input_ids": small})
    compare(architecture, AutoModelForCausalLM, step, ours, input_ids=small)

mask = torch.ones_like(tokens)
mask[1, 20:] = 0
labels = torch.arange(100, 100 + 2 * 13).reshape(2, 13)
labels[0, 9:] = -100
asked = {"input_ids": tokens, "attention_mask": mask, "labels": labels}
step, ours = train_and_evaluate("T5ForConditionalGeneration", ENCODER.split(), asked)
compare("T5ForConditionalGeneration", T5ForConditionalGeneration, step, ours, **asked)

asked = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": (tokens > 15).to(torch.int64)}
for kind, flags in {BertForPreTraining: [], BertForMaskedLM: ["--bert-no-binary-head"]}.items():
    step, ours = train_and_evaluate(kind.__name__, BERT.split() + flags, asked)
    compare(kind.__name__, kind, step, ours, **asked)
