#!/usr/bin/env python3
"""Trains one Llama shape on the CPU with another framework, in fp32: forward, backward, gradient clipping to 1.0 and an
AdamW step on random tokens. Prints one JSON object with the tokens/s of the median step.

`megatron` is Megatron Core with its local layers, gradient buffers and FP32 optimizer in a world of one. It requests
CUDA devices in places; OnCpu redirects them to the CPU while the model is built and the optimizer steps, never in the
timed forward and backward. `transformers` is LlamaForCausalLM, or with --experts MixtralForCausalLM (top-2 routing), with
sdpa attention."""
import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)


def pretend_cuda():
    """Stubs the parts of torch.cuda that Megatron Core uses in a world of one."""
    nothing = lambda *args, **kwargs: None
    stream = type("Stream", (), {"__getattr__": lambda self, name: nothing})()
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = torch.cuda.empty_cache = nothing
    torch.cuda.Stream = torch.cuda.Event = torch.cuda.current_stream = lambda *args, **kwargs: stream
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    type_of = torch.Tensor.type
    torch.Tensor.type = lambda self, *args, **kwargs: (
        type_of(self, *args, **kwargs) if args or kwargs else "torch.cuda." + type_of(self).split(".")[-1])


def megatron(args):
    pretend_cuda()
    import torch.distributed as dist
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with OnCpu():
        from megatron.core import parallel_state
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
        from megatron.core.models.gpt.gpt_model import GPTModel
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.tensor_parallel import random as tensor_random
        from megatron.core.transformer.transformer_config import TransformerConfig
        tensor_random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
        parallel_state.initialize_model_parallel()
        config = TransformerConfig(
            num_layers=args.layers, hidden_size=args.hidden, num_attention_heads=args.heads,
            num_query_groups=args.kv_heads, ffn_hidden_size=args.ffn, normalization="RMSNorm",
            gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False,
            hidden_dropout=0.0, attention_dropout=0.0, masked_softmax_fusion=False, bias_activation_fusion=False,
            bias_dropout_fusion=False, apply_rope_fusion=False, gradient_accumulation_fusion=False,
            use_cpu_initialization=True, params_dtype=torch.float32, pipeline_dtype=torch.float32)
        model = GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=args.vocab,
                         max_sequence_length=max(args.seq, 128), position_embedding_type="rope",
                         share_embeddings_and_output_weights=False)
        parameters = sum(p.numel() for p in model.parameters())
        model = DistributedDataParallel(
            config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, check_for_nan_in_grad=False), model)
        optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=1e-4, weight_decay=0.1, adam_beta2=0.95, clip_grad=1.0,
                            params_dtype=torch.float32), [model])
    positions = torch.arange(args.seq).expand(args.micro_batch, -1)
    mask = torch.ones(args.seq, args.seq, dtype=torch.bool).triu(1)[None, None]

    def step(tokens):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        loss = model(tokens[:, :-1].contiguous(), positions, mask, labels=tokens[:, 1:].contiguous()).mean()
        loss.backward()
        with OnCpu():
            model.finish_grad_sync()
            optimizer.step()
        return loss.item()

    return step, parameters


def transformers(args):
    from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
    mixture = {"num_local_experts": args.experts, "num_experts_per_tok": 2} if args.experts else {}
    config = (MixtralConfig if args.experts else LlamaConfig)(
        vocab_size=args.vocab, hidden_size=args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=args.heads, num_key_value_heads=args.kv_heads, intermediate_size=args.ffn,
        max_position_embeddings=max(args.seq, 128), attn_implementation="sdpa", use_cache=False,
        tie_word_embeddings=False, **mixture)
    model = (MixtralForCausalLM if args.experts else LlamaForCausalLM)(config).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)

    def step(tokens):
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, args.vocab), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step, sum(p.numel() for p in model.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["megatron", "transformers"])
    for name in ("layers", "hidden", "heads", "kv-heads", "ffn", "seq", "vocab", "micro-batch"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    torch.manual_seed(1)
    step, parameters = {"megatron": megatron, "transformers": transformers}[args.peer](args)
    random = torch.Generator().manual_seed(1)
    times, loss = [], None
    for _ in range(args.warmup + args.steps):
        tokens = torch.randint(0, args.vocab, (args.micro_batch, args.seq + 1), generator=random)
        begin = time.perf_counter()
        loss = step(tokens)
        times.append(time.perf_counter() - begin)
    counted = times[args.warmup:]
    print(json.dumps({
        "name": args.peer,
        "tokens_per_s": args.micro_batch * args.seq / statistics.median(counted),
        "median_ms": statistics.median(counted) * 1e3,
        "best_ms": min(counted) * 1e3,
        "last_loss": loss,
        "parameters": parameters,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }))
    sys.stdout.flush()
    os._exit(0)  # skips destruction of the process group


if __name__ == "__main__":
    main()
