"""Records samples of Megatron Core's BERT data set by rules of masking that `indexed/masked` does not have.

    PYTHONPATH=<megatron-core 0.16.1> tests/vectors/masked/record.py FOLDER

Writes FOLDER/<name>.safetensors, first 20 samples each, and manifest.json. The data are `indexed/bert_uint16`, the
tokenizer is the one that the manifest there names. Lengths of spans that trade places come from NumPy's global generator
in Megatron: before sample i it is seeded with (random_seed + i) % 2**32.
"""

import json
import pathlib
import sys
import tempfile

import megatron.core
import numpy
import torch
from megatron.core.datasets.bert_dataset import BERTMaskedWordPieceDataset, BERTMaskedWordPieceDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split
from safetensors.numpy import save_file

VECTORS = pathlib.Path(__file__).parent.parent
COMMON = dict(split="90,10,0", masking_probability=0.15, short_sequence_probability=0.1, masking_do_full_word=True,
              masking_do_permutation=False, masking_use_longer_ngrams=False, masking_max_ngram=3,
              masking_use_geometric_distribution=False, classification_head=True, sequence_length=96)
CASES = {
    "longer": dict(random_seed=21, masking_use_longer_ngrams=True, masking_max_ngram=4),
    "permuted": dict(random_seed=22, masking_do_permutation=True),
    "permuted_longer": dict(random_seed=23, masking_do_permutation=True, masking_use_longer_ngrams=True,
                            masking_max_ngram=9, masking_probability=0.3, classification_head=False, sequence_length=80),
    "pieces": dict(random_seed=24, masking_do_full_word=False, masking_do_permutation=True, masking_max_ngram=2,
                   short_sequence_probability=0.5),
}
SAMPLES = 20


class Tokenizer:
    """The tokenizer of the vectors: ids of BERT's special tokens, and which pieces continue a word."""

    cls, sep, mask, pad = 2, 3, 4, 0

    def __init__(self):
        model = json.loads((VECTORS / "tokenizers/bert_wordpiece.json").read_text())["model"]
        self.inv_vocab = {id: piece for piece, id in model["vocab"].items()}
        self.unique_identifiers = {}


def record(folder, name, changes):
    config = BERTMaskedWordPieceDatasetConfig(blend=([str(VECTORS / "indexed/bert_uint16")], None), tokenizer=Tokenizer(),
                                              path_to_cache=tempfile.mkdtemp(), **{**COMMON, **changes})
    source = IndexedDataset(str(VECTORS / "indexed/bert_uint16"))
    count = round(0.9 * (source.document_indices.shape[0] - 1))
    dataset = BERTMaskedWordPieceDataset(source, "bert_uint16", numpy.arange(count, dtype=numpy.int32), 300, Split.train,
                                         config)
    samples = []
    for i in range(SAMPLES):
        numpy.random.seed((config.random_seed + i) % 2**32)
        samples.append(dataset[i])
    save_file({key: numpy.array([sample[key] for sample in samples]).astype(numpy.int32) for key in samples[0]},
              folder / f"{name}.safetensors")
    return {"config": {**COMMON, **changes}, "documents": count, "num_samples": 300, "len": len(dataset)}


def main(folder):
    folder.mkdir(exist_ok=True)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    manifest = {"made_by": "record.py", "megatron-core": megatron.core.__version__, "numpy": numpy.__version__,
                "tolerance": "exact", "samples": SAMPLES,
                "cases": {name: record(folder, name, changes) for name, changes in CASES.items()}}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
