"""Records what Transformers computes with a tiny Gemma 2: tests/vectors/hf/record.py FOLDER

Writes FOLDER/gemma2 as the other folders beside this file are: the checkpoint, `config.json` in the form of published
files and as Transformers writes it, and `vectors.safetensors` with input, logits, loss and, for each gradient, its norm
and its product with cos(0.37 i + 0.1). Caps are so low that they bend scores and logits. Prints its entry of
manifest.json.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SHAPE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             intermediate_size=160, vocab_size=320, max_position_embeddings=128)


def make():
    torch.manual_seed(1)
    config = transformers.Gemma2Config(**SHAPE, sliding_window=8, query_pre_attn_scalar=32, attn_logit_softcapping=2.0,
                                       final_logit_softcapping=6.0, bos_token_id=1, eos_token_id=2, pad_token_id=None,
                                       attn_implementation="eager")
    model = transformers.Gemma2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            std = 0.3 if "embed" in name else 0.1 if value.dim() == 1 else 0.15
            value.copy_(torch.randn(value.shape) * std)
    tokens = torch.randint(3, config.vocab_size, (2, 32))
    labels = tokens.clone()
    labels[0, :5] = -100
    return model, tokens, labels


def computed(model, tokens, labels):
    model.zero_grad()
    out = model(input_ids=tokens, labels=labels)
    out.loss.backward()
    return out, {name: value.grad.double() for name, value in model.named_parameters()}


def number(x):
    return x.detach().float().reshape(1)


def write_config(model, folder):
    """Older files say rotary bases, scaling and type of the weights in words of their own."""
    new = json.loads((folder / "config.json").read_text())
    (folder / "config_v5.json").write_text(json.dumps(new, indent=1, sort_keys=True) + "\n")
    old = {key: value for key, value in new.items() if key not in ("dtype", "rope_parameters")}
    old.update(torch_dtype="float32", rope_theta=new["rope_parameters"]["rope_theta"], rope_scaling=None)
    (folder / "config.json").write_text(json.dumps(old, indent=1) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1]) / "gemma2"
    model, tokens, labels = make()
    model.save_pretrained(folder)
    write_config(model, folder)
    single, _ = computed(model, tokens, labels)
    out, grads = computed(model.double(), tokens, labels)
    vectors = {"in.input_ids": tokens.int(), "in.labels": labels.int(), "logits": single.logits.detach(),
               "loss": number(out.loss)}
    for name, grad in grads.items():
        probe = torch.cos(torch.arange(grad.numel(), dtype=torch.float64) * 0.37 + 0.1)
        vectors["grad_norm." + name] = number(grad.norm())
        vectors["grad_dot." + name] = number(grad.flatten() @ probe)
    save_file(vectors, folder / "vectors.safetensors")
    entry = {"class": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters()),
             "loss": float(single.loss), "grad_norm": float(sum(g.norm() ** 2 for g in grads.values()) ** 0.5),
             "logits_absmax": float(single.logits.abs().max()),
             "fp32_vs_fp64_logits_absmax": float((single.logits - out.logits).abs().max()),
             "fp32_vs_fp64_loss": float((single.loss - out.loss).abs()), "no_gradient": [], "loading": "clean",
             "inputs": {key: ["int64", [2, 32]] for key in ("input_ids", "labels")}, "logits": [2, 32, 320]}
    print(json.dumps(entry, indent=1))


main()
