"""The real Transformers opens every config.json that we write, and means by it, and by those that are
published, what we mean.

usage: configs_like_transformers.py MODELS_TEST SCRATCH
MODELS_TEST writes the files of every family; Transformers opens each, makes the class that it names, and saves
what it understood; MODELS_TEST reads that again and compares the models.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

models_test, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoConfig


def half(name):
    subprocess.run([models_test, f"--gtest_filter=ConfigExchange.{name}", "--gtest_brief=1"], check=True,
                   env=os.environ | {"COLONNADE_CONFIG_EXCHANGE": str(scratch)})


def saved(config, folder):
    config.save_pretrained(folder)
    return (folder / "config.json").read_text()


half("WritesEveryFamily")
classes = set()
for folder in sorted(scratch.iterdir()):
    ours = AutoConfig.from_pretrained(folder)
    name = ours.architectures[0]
    if not folder.name.startswith("published"):  # small ones
        with torch.device("meta"):
            getattr(transformers, name)._from_config(ours)
    if folder.name.endswith("without_windows"):  # some classes compute with a window only
        getattr(transformers, name)._from_config(ours)(torch.zeros((1, 4), dtype=torch.long))
    classes.add(name)
    given = json.loads((folder / "given.json").read_text())
    (folder / "config_saved.json").write_text(saved(ours, folder / "ours"))
    if given["model_type"] != "kimi_k2":  # remote code
        (folder / "theirs").mkdir()
        (folder / "theirs" / "config.json").write_text(json.dumps(given))
        (folder / "given_saved.json").write_text(saved(AutoConfig.from_pretrained(folder / "theirs"), folder / "theirs"))
half("ReadsWhatTransformersMadeOfThem")
assert len(classes) == 14, classes
print(f"{len(list(scratch.iterdir()))} files, classes {', '.join(sorted(classes))}")
