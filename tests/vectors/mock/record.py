"""Records the first samples of Megatron Core's mock data: PYTHONPATH=<megatron-core 0.16.1> record.py FOLDER

Writes FOLDER/<split>.safetensors (tokens and labels) and manifest.json.
"""

import json
import pathlib
import sys

import megatron.core
import numpy
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset
from safetensors.numpy import save_file

SETTINGS = dict(random_seed=77, sequence_length=64, reset_position_ids=False, reset_attention_mask=False,
                eod_mask_loss=False, create_attention_mask=False)
SIZES = {"train": 600, "valid": 40, "test": 20}
SAMPLES = 12


class Tokenizer:
    vocab_size, eod, pad = 1000, 999, -1
    unique_identifiers = {}


def main(folder):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    config = GPTDatasetConfig(tokenizer=Tokenizer(), **SETTINGS)
    built = BlendedMegatronDatasetBuilder(MockGPTDataset, list(SIZES.values()), lambda: True, config).build()
    manifest = {"made_by": "record.py", "megatron-core": megatron.core.__version__, "numpy": numpy.__version__,
                "tolerance": "exact", "config": SETTINGS, "vocab_size": 1000, "eod": 999, "samples": SAMPLES, "splits": {}}
    for name, dataset in zip(SIZES, built):
        rows = [dataset[i] for i in range(SAMPLES)]
        save_file({key: numpy.stack([row[key].numpy() for row in rows]).astype(numpy.int32) for key in ("tokens", "labels")},
                  folder / f"{name}.safetensors")
        manifest["splits"][name] = {"asked": SIZES[name], "len": len(dataset)}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
