"""Writes torch_muon.json: parameters before and after three steps of torch.optim.Muon. Run: python make.py"""
import json
import pathlib

import torch

SETTINGS = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.95, "ns_steps": 5}


def case(rows, columns, nesterov):
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    value = torch.nn.Parameter(torch.randn(rows, columns, generator=generator))
    grads = [torch.randn(rows, columns, generator=generator) for _ in range(3)]
    before = value.detach().clone()
    optimizer = torch.optim.Muon([value], nesterov=nesterov, **SETTINGS)
    for grad in grads:
        value.grad = grad.clone()
        optimizer.step()
    return {
        "shape": [rows, columns],
        "nesterov": nesterov,
        "before": before.flatten().tolist(),
        "grads": [grad.flatten().tolist() for grad in grads],
        "after": value.detach().flatten().tolist(),
    }


cases = [case(r, c, n) for r, c in [(6, 9), (9, 6), (5, 5)] for n in (False, True)]
content = {"torch": torch.__version__, "settings": SETTINGS, "cases": cases}
pathlib.Path(__file__).with_name("torch_muon.json").write_text(json.dumps(content) + "\n")
