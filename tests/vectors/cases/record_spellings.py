"""Records what Transformers computes with folders whose tensors have other spellings: record_spellings.py FOLDER

Writes FOLDER/<case> for every case below: config.json, model.safetensors, in.safetensors (input_ids; t5 has
labels too) and expected.safetensors (logits of the folder as Transformers reads it). Cases that differ from
what Transformers saves are made by a change of its files.
"""
import pathlib
import sys

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

LLAMA = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=4, vocab_size=32, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=None)
EXPERTS = dict(num_experts_per_tok=2)


def fill(model):
    with torch.no_grad():
        for name, value in model.named_parameters():
            center = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            value.copy_(center + torch.randn(value.shape) * 0.2)
    return model.eval()


def renamed(folder, change):
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})


def llama_base(folder):
    fill(tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA, tie_word_embeddings=True))).model.save_pretrained(folder)


def llama_language_model(folder):
    fill(tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA))).save_pretrained(folder)


def llama_head_alone(folder):
    llama = fill(tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA, tie_word_embeddings=True)))
    llama.save_pretrained(folder)
    renamed(folder, lambda tensors: {"lm_head.weight" if "embed" in name else name: value
                                     for name, value in tensors.items()})


def mixtral_fused(folder):
    config = tf.MixtralConfig(**LLAMA, **EXPERTS, num_local_experts=4, sliding_window=None)
    fill(tf.MixtralForCausalLM(config)).save_pretrained(folder, save_original_format=False)


def qwen3_moe_fused(folder):
    config = tf.Qwen3MoeConfig(**LLAMA, **EXPERTS, num_experts=4, moe_intermediate_size=12, norm_topk_prob=True)
    fill(tf.Qwen3MoeForCausalLM(config)).save_pretrained(folder, save_original_format=False)


def deepseek_v3_fused(folder):
    sizes = {key: value for key, value in LLAMA.items() if key not in ("head_dim", "num_key_value_heads")}
    config = tf.DeepseekV3Config(**sizes, **EXPERTS, num_key_value_heads=4, n_routed_experts=4, n_shared_experts=1,
                                 moe_intermediate_size=12, first_k_dense_replace=1, n_group=2, topk_group=1,
                                 q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=4)
    model = fill(tf.DeepseekV3ForCausalLM(config))
    for layer in model.model.layers[1:]:
        layer.mlp.gate.e_score_correction_bias.copy_(torch.randn(4) * 0.1)
    model.save_pretrained(folder, save_original_format=False)


def t5_other_head(folder):
    config = tf.T5Config(d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, vocab_size=32, pad_token_id=0,
                         eos_token_id=1, decoder_start_token_id=0, feed_forward_proj="gated-gelu")
    fill(tf.T5ForConditionalGeneration(config)).save_pretrained(folder)
    renamed(folder, lambda tensors: {**tensors, "lm_head.weight": torch.randn(32, 16) * 0.2,
                                     "encoder.embed_tokens.weight": tensors["shared.weight"].clone(),
                                     "decoder.embed_tokens.weight": tensors["shared.weight"].clone()})


def bert_other_head(folder):
    """Without `bert.` in front, with decoder weight and bias of their own."""
    config = tf.BertConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                           vocab_size=32, max_position_embeddings=32)
    fill(tf.BertForMaskedLM(config)).save_pretrained(folder)
    renamed(folder, lambda tensors: {**{name.removeprefix("bert."): value for name, value in tensors.items()},
                                     "cls.predictions.decoder.weight": torch.randn(32, 16) * 0.2,
                                     "cls.predictions.decoder.bias": torch.randn(32) * 0.2})


CASES = {name: getattr(tf, kind) for name, kind in {
    "llama_base": "LlamaForCausalLM", "llama_language_model": "LlamaForCausalLM", "llama_head_alone": "LlamaForCausalLM",
    "mixtral_fused": "MixtralForCausalLM", "qwen3_moe_fused": "Qwen3MoeForCausalLM",
    "deepseek_v3_fused": "DeepseekV3ForCausalLM", "t5_other_head": "T5ForConditionalGeneration",
    "bert_other_head": "BertForMaskedLM"}.items()}


def main():
    for name, kind in CASES.items():
        torch.manual_seed(3)
        folder = pathlib.Path(sys.argv[1]) / name
        globals()[name](folder)
        for other in ("generation_config.json",):
            (folder / other).unlink(missing_ok=True)
        model = kind.from_pretrained(folder).eval()
        tokens = {"input_ids": torch.randint(3, 32, (2, 16))}
        if name.startswith("t5"):
            tokens["labels"] = torch.randint(3, 32, (2, 16))
        logits = model(**tokens).logits.detach()
        if name == "llama_language_model":  # a wrapper that Transformers reads for models of several parts alone
            renamed(folder, lambda tensors: {"language_model." + key: value for key, value in tensors.items()})
        save_file({key: value.int() for key, value in tokens.items()}, folder / "in.safetensors")
        save_file({"logits": logits.float().contiguous()}, folder / "expected.safetensors")
        print(name, sorted(load_file(folder / "model.safetensors"))[:4])


main()
