"""Records what Megatron's fill-in-the-middle makes of samples: tests/vectors/fim/record.py FIM_DATASET.PY FOLDER

FIM_DATASET.PY is megatron/training/datasets/fim_dataset.py of Megatron-LM d98e8a6, which needs megatron-core 0.16.1 on
PYTHONPATH. Its method is run on one sequence after the other of a data set of `indexed`, all with one RandomState, as if
each were a sample. Writes FOLDER/<case>.safetensors, `text` of the rows one behind the other, and manifest.json.
"""

import importlib.util
import json
import pathlib
import sys
import types

import numpy
import tokenizers
from megatron.core.datasets.indexed_dataset import IndexedDataset
from safetensors.numpy import save_file

VECTORS = pathlib.Path(__file__).parent.parent
TOKENS = ("prefix", "middle", "suffix", "pad", "eod")
LLAMA = dict(tokenizer="llama3_bpe", data="gpt_int32", seed=1234, fim_rate=0.5, fim_spm_rate=0.5, fim_fragment_rate=None,
             fim_split_sample=None, fim_no_prefix=None,
             tokens=["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>", "<|end_of_text|>"])
GPT2 = dict(LLAMA, tokenizer="gpt2_bpe", data="gpt2_uint16", tokens=["<", ">", "^", "~", "<|endoftext|>"])
CASES = {
    "llama": LLAMA,
    "always": dict(GPT2, seed=7, fim_rate=1.0, fim_spm_rate=0.9),
    "fragments": dict(GPT2, seed=8, fim_rate=0.75, fim_spm_rate=0.25, fim_fragment_rate=0.6, fim_split_sample="."),
    "no_prefix": dict(LLAMA, seed=9, fim_rate=0.9, fim_no_prefix="T"),
}
JOINED = 3  # sequences of a data set in one sample, so that it has several documents
SAMPLES = 40


class Library:
    """As Megatron's HuggingFaceTokenizer: texts get the special ids that the file puts around them."""

    def __init__(self, name):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(VECTORS / f"tokenizers/{name}.json"))

    def tokens_to_ids(self, tokens):
        if isinstance(tokens, str):
            return self.tokenizer.token_to_id(tokens)
        return [self.tokenizer.token_to_id(token) for token in tokens]

    def ids_to_text(self, ids, remove_special_tokens):
        return self.tokenizer.decode([int(id) for id in ids], skip_special_tokens=remove_special_tokens)

    def text_to_ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=True).ids


def record(module, folder, name, case):
    source = IndexedDataset(str(VECTORS / "indexed" / case["data"]))
    library = Library(case["tokenizer"])
    dataset = module.GPTFIMDataset.__new__(module.GPTFIMDataset)
    dataset.config = types.SimpleNamespace(tokenizer=types.SimpleNamespace(_tokenizer=library))
    dataset.np_rng = numpy.random.RandomState(case["seed"])
    dataset.fim_rate, dataset.fim_spm_rate = case["fim_rate"], case["fim_spm_rate"]
    dataset.fragment_fim_rate, dataset.no_fim_prefix = case["fim_fragment_rate"], case["fim_no_prefix"]
    split = case["fim_split_sample"]
    dataset.fim_split_sample = library.tokens_to_ids(split) if split else None
    for token, id in zip(TOKENS, library.tokens_to_ids(case["tokens"])):
        setattr(dataset, f"{token}_tok_id", id)
    dataset.shuffle_index = numpy.arange(SAMPLES)
    dataset.document_index = numpy.arange(len(source))
    # From the middle of a sequence to the middle of another, as samples lie.
    starts = [(JOINED * i, len(source[JOINED * i]) // 2) for i in range(SAMPLES + 1)]
    dataset.sample_index = numpy.array(starts)
    dataset.dataset = source
    # Newer cores return three values.
    rows = [dataset._query_document_sample_shuffle_indices(i)[0] for i in range(SAMPLES)]
    save_file({"text": numpy.concatenate(rows).astype(numpy.int32)}, folder / f"{name}.safetensors")
    return {**case, "lengths": [len(row) for row in rows]}


def main(path, folder):
    spec = importlib.util.spec_from_file_location("fim_dataset", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    manifest = {"made_by": "record.py", "Megatron-LM": "d98e8a64ddf34856e74b24714e3bedb2f5a39553", "numpy": numpy.__version__,
                "tokenizers": tokenizers.__version__, "tolerance": "exact", "joined": JOINED,
                "cases": {name: record(module, folder, name, case) for name, case in CASES.items()}}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
