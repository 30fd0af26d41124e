"""The real Megatron Core loads what --ckpt-format torch_dist and `colonnade convert` write, and gives our logits.

usage: megatron_loads_a_step.py COLONNADE SCRATCH
Trains a small model for two steps on two ranks, loads the checkpoint into a GPTModel filled with NaN by
megatron.core.dist_checkpointing, which raises an error for any missing key, and compares logits in fp32 with those of
`colonnade evaluate`. torch.distributed.checkpoint reads the optimizer's states, whose masters are the weights.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")
colonnade, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

VOCABULARY, LENGTH = 384, 32
SETTINGS = f"""gpt --num-layers 2 --hidden-size 64 --ffn-hidden-size 160 --num-attention-heads 4 --group-query-attention
--num-query-groups 2 --seq-length {LENGTH} --max-position-embeddings {LENGTH} --micro-batch-size 2 --global-batch-size 4
--train-iters 2 --lr 1e-2 --mock-data --tokenizer-type NullTokenizer --vocab-size {VOCABULARY} --position-embedding-type
rope --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --hidden-dropout 0
--attention-dropout 0 --tensor-model-parallel-size 2 --ckpt-format torch_dist""".split()


def run(*words):
    done = subprocess.run([colonnade, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")


class OnCpu(TorchFunctionMode):
    """Sends devices named cuda to the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def megatron_model():
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel import random as tensor_random
    from megatron.core.transformer.transformer_config import TransformerConfig
    tensor_random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    parallel_state.initialize_model_parallel()
    config = TransformerConfig(
        num_layers=2, hidden_size=64, num_attention_heads=4, num_query_groups=2, ffn_hidden_size=160,
        normalization="RMSNorm", gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
        hidden_dropout=0.0, attention_dropout=0.0, masked_softmax_fusion=False, bias_activation_fusion=False,
        bias_dropout_fusion=False, apply_rope_fusion=False, gradient_accumulation_fusion=False, use_cpu_initialization=True)
    return GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=VOCABULARY,
                    max_sequence_length=LENGTH, position_embedding_type="rope", share_embeddings_and_output_weights=False)


def load(model, folder):
    """Loads every tensor and extra state that the model asks for."""
    from megatron.core import dist_checkpointing
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    model.load_state_dict(dist_checkpointing.load(model.sharded_state_dict(), str(folder)), strict=False)
    common = dist_checkpointing.load_common_state_dict(str(folder))
    assert common["args"].num_layers == 2 and common["checkpoint_version"] == 3.0, common
    return common


def logits_of(model, tokens):
    positions = torch.arange(LENGTH).expand(len(tokens), -1)
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)[None, None]
    with torch.no_grad():
        return model(tokens, positions, mask)


def main():
    run("launch", "--nproc-per-node", 2, "--", "pretrain", *SETTINGS, "--save", scratch / "run")
    step = scratch / "run" / "iter_0000002"
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    save_file({"input_ids": tokens.to(torch.int32)}, scratch / "tokens.safetensors")
    run("evaluate", "--load", scratch / "run", "--tokens", scratch / "tokens.safetensors", "--logits-out",
        scratch / "logits.safetensors")
    ours = next(iter(load_file(scratch / "logits.safetensors").values()))
    run("convert", "--from", f"megatron:{scratch / 'run'}", "--to", f"hf:{scratch / 'hf'}")
    run("convert", "--from", f"hf:{scratch / 'hf'}", "--to", f"megatron:{scratch / 'again'}")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with OnCpu():
        model = megatron_model().eval()
        for folder in (step, scratch / "again" / "release"):
            common = load(model, folder)
            difference = (logits_of(model, tokens) - ours).abs().max().item()
            print(f"{folder.name}: largest difference of logits {difference:.2g}")
            assert difference < 2e-5, difference
    metadata = dcp.FileSystemReader(str(step)).read_metadata().state_dict_metadata
    tensors = {k: torch.zeros(v.size, dtype=v.properties.dtype) for k, v in metadata.items() if hasattr(v, "size")}
    dcp.load(tensors, checkpoint_id=str(step), no_dist=True)
    masters = [k for k in tensors if k.startswith("optimizer.state.param.")]
    assert len(masters) == 9, masters
    for name in masters:
        key = name.removeprefix("optimizer.state.param.")
        assert torch.equal(tensors[name], tensors[key]), name
        assert tensors["optimizer.state.exp_avg." + key].abs().max() > 0, name
    print(f"{len(tensors)} tensors and their states, read by torch.distributed.checkpoint")


main()
