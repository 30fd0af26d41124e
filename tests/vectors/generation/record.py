"""Records what Transformers generates under a generation_config.json: tests/vectors/generation/record.py

Writes expected.json beside this file: for each configuration the tokens that `generate` of Transformers makes after a
prompt with the model of tests/vectors/hf/llama, the end of the text left out. Every configuration has one right text:
sampling is from one token.
"""

import json
import pathlib
import shutil
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).parent
LLAMA = HERE.parent / "hf" / "llama"
PROMPT = [104, 310, 7, 239, 316, 5, 18]
LIMIT = 24  # where a configuration names none

CONFIGS = {
    "greedy_without_do_sample": {"temperature": 0.6, "top_p": 0.9},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "repetition_penalty_below_one": {"repetition_penalty": 0.7},
    "sample_from_one": {"do_sample": True, "top_k": 1, "temperature": 2.0},
    "max_new_tokens": {"max_new_tokens": 5, "max_length": 9},
    "max_length": {"max_length": 15},
    "top_p_zero": {"do_sample": True, "top_k": 0, "top_p": 0.0, "temperature": 5.0},
}
# In config.json, where there is no generation_config.json.
OF_MODEL = {
    "config_repetition_penalty": {"repetition_penalty": 1.7, "max_length": 20},
    "config_max_new_tokens": {"max_new_tokens": 6, "do_sample": False, "temperature": 0.7, "top_p": None},
    "config_sampling": {"do_sample": True, "top_k": 1, "temperature": 2.0},
    "config_top_p_zero": {"do_sample": True, "top_k": 0, "top_p": 0.0, "temperature": 5.0},
}


def generated(folder, config, stored):
    (folder / "generation_config.json").unlink(missing_ok=True)
    if stored is not None:
        (folder / "generation_config.json").write_text(json.dumps(stored))
    (folder / "config.json").write_text(json.dumps(config))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    limited = any(key in (config if stored is None else stored) for key in ("max_new_tokens", "max_length"))
    more = {} if limited else {"max_new_tokens": LIMIT}
    ids = torch.tensor([PROMPT])
    tokens = model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **more)[0, len(PROMPT):].tolist()
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    ended = bool(tokens) and tokens[-1] in ends
    return {"tokens": tokens[:-1] if ended else tokens, "ended": ended}


def main():
    torch.manual_seed(1)
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        shutil.copy(LLAMA / "model.safetensors", folder)
        plain = json.loads((LLAMA / "config.json").read_text())

        def add(name, stored, config=plain, keys={}):
            config = {**config, **keys}
            cases.append({"name": name, "generation_config": stored, "config_eos": config["eos_token_id"],
                          **({"config": keys} if keys else {}), **generated(folder, config, stored)})

        add("no_file", None)
        text = cases[0]["tokens"]
        assert len(text) == LIMIT
        for name, stored in CONFIGS.items():
            add(name, {"eos_token_id": 2, **stored})
        add("one_end", {"eos_token_id": text[13]})
        add("several_ends", {"eos_token_id": [319, text[15], text[14]]})
        add("null_end", {"eos_token_id": None}, {**plain, "eos_token_id": text[13]})
        add("ends_of_config", None, {**plain, "eos_token_id": [2, text[14]]})
        for name, keys in OF_MODEL.items():
            add(name, None, keys=keys)
        add("file_beside_config", {"eos_token_id": 2}, keys=OF_MODEL["config_repetition_penalty"])
    out = {"maker": "tests/vectors/generation/record.py", "transformers": transformers.__version__, "model": "hf/llama",
           "prompt": PROMPT, "limit": LIMIT, "cases": cases}
    (HERE / "expected.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
