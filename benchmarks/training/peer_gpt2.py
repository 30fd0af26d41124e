#!/usr/bin/env python3
"""GPT-2 124M on one GPU with Transformers: forward, backward, clipping to 1.0 and a fused AdamW step on random
tokens; bf16 autocast over fp32 weights, so weights, gradients and moments have the same dtypes as in Colonnade.

usage: peer_gpt2.py [--compile] [--micro-batch 16] [--seq 1024] [--steps 20]     prints one JSON object"""
import argparse
import json
import statistics
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    args = parser.parse_args()

    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    config = GPT2Config(vocab_size=50257, n_positions=args.seq, use_cache=False, attn_implementation="sdpa",
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if args.compile else model

    def step(tokens):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = forward(tokens[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    times = []
    for _ in range(args.warmup + args.steps):
        tokens = torch.randint(0, 50257, (args.micro_batch, args.seq + 1), device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step(tokens)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    median = statistics.median(times[args.warmup:])
    print(json.dumps({
        "name": "transformers torch.compile" if args.compile else "transformers eager",
        "tokens_per_s": args.micro_batch * args.seq / median,
        "median_ms": median * 1e3,
        "best_ms": min(times[args.warmup:]) * 1e3,
        "peak_mb": torch.cuda.max_memory_allocated() / 1e6,
    }))


if __name__ == "__main__":
    main()
