"""The real AutoTokenizer opens a step folder and gives the ids, messages and ends of the run's tokenizer.

usage: tokenizers_of_steps.py COLONNADE SCRATCH
Trains small models for one step with tokenizers of each kind of file, and one from a Hugging Face folder whose tokenizer no
flag names; that folder is removed, and its run goes on and generates with the copies.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

colonnade, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
os.environ["HF_HUB_OFFLINE"] = "1"

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VECTORS = pathlib.Path(os.environ.get("COLONNADE_VECTORS") or pathlib.Path(__file__).resolve().parent.parent / "vectors") / "tokenizers"
SIZES = """--num-layers 1 --hidden-size 16 --ffn-hidden-size 32 --num-attention-heads 2 --seq-length 16
--max-position-embeddings 64 --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear
--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0""".split()
STEPS = "--micro-batch-size 1 --global-batch-size 1 --lr 1e-3 --eval-iters 0 --lr-decay-iters 4 --save-interval 1".split()
TEXTS = ["Hello, world!", "I'm  here; you're 1234 there.\n", "naïve café 東京 🙂", ""]


def run(*words):
    done = subprocess.run([colonnade, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def step(folder, number):
    return folder / "checkpoints" / f"step_{number:08}"


def recorded(name):
    """The texts of the vectors and the ids that the real tokenizer gave, without special ones."""
    texts = [json.loads(line)["text"] for line in (VECTORS / "inputs.jsonl").open()]
    ids = [json.loads(line)["ids"] for line in (VECTORS / f"{name}.expected.jsonl").open()]
    return list(zip(texts, ids))


def check_files(name, vector, *flags):
    folder = scratch / name
    run("pretrain", "gpt", *SIZES, *STEPS, "--train-iters", 1, "--mock-data", "--save", folder, *flags)
    run("checkpoint", "verify", folder)
    tokenizer = AutoTokenizer.from_pretrained(step(folder, 1))
    for text, ids in recorded(vector):
        if vector.count("_sp") + vector.count("sp_") and any(token in text for token in tokenizer.all_special_tokens):
            continue  # SentencePiece itself never reads a special token in a text
        given = tokenizer.encode(text, add_special_tokens=False)
        assert given == ids, (name, text, given, ids)
    config = json.loads((step(folder, 1) / "config.json").read_text())
    if (eos := tokenizer.eos_token_id) is not None:
        assert eos == config["eos_token_id"], (name, eos, config)
    print(f"{name}: {type(tokenizer).__name__}, {len(tokenizer)} ids")


def older_files():
    """vocab.json and merges.txt of GPT-2, vocab.txt of BERT, out of the recorded tokenizer.json."""
    gpt2 = json.loads((VECTORS / "gpt2_bpe.json").read_text())
    vocabulary = {**gpt2["model"]["vocab"], **{t["content"]: t["id"] for t in gpt2["added_tokens"]}}
    (scratch / "vocab.json").write_text(json.dumps(vocabulary))
    merges = [m if isinstance(m, str) else " ".join(m) for m in gpt2["model"]["merges"]]
    (scratch / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    bert = json.loads((VECTORS / "bert_wordpiece.json").read_text())["model"]["vocab"]
    (scratch / "vocab.txt").write_text("\n".join(sorted(bert, key=bert.get)) + "\n")


def published(folder):
    """A Hugging Face folder with a chat template, two ends and sampling."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(VECTORS / "llama3_bpe.json"), bos_token="<|begin_of_text|>",
                                        eos_token="<|end_of_text|>")
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer) + 3, hidden_size=16, intermediate_size=32,
                                         num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=64,
                                         initializer_range=0.5))
    ends = [tokenizer.eos_token_id, 7]
    model.generation_config.update(eos_token_id=ends, do_sample=True, temperature=0.6, top_p=0.9)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def check_opened(folder, before, generation):
    after = AutoTokenizer.from_pretrained(folder)
    assert [after.encode(text) for text in TEXTS] == [before.encode(text) for text in TEXTS]
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    assert after.apply_chat_template(messages, tokenize=False) == before.apply_chat_template(messages, tokenize=False)
    assert json.loads((folder / "generation_config.json").read_text()) == generation
    LlamaForCausalLM.from_pretrained(folder)


def check_generated(folder):
    """The most probable tokens after prompts that the tokenizer itself begins."""
    model, tokenizer = LlamaForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for prompt in ("Hello, world!", "1234 there", "<|begin_of_text|>Hello"):
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=not prompt.startswith("<|begin")).input_ids
        assert ids[0, 0] == tokenizer.bos_token_id and ids[0, 1] != tokenizer.bos_token_id
        expected = tokenizer.decode(model.generate(ids, do_sample=False, max_new_tokens=8)[0, ids.shape[1]:],
                                    skip_special_tokens=True)
        text = run("generate", "--load", folder, "--prompt", prompt, "--max-new-tokens", 8, "--temperature", 0)
        assert prompt + expected in text, (prompt, expected, text)


def check_published():
    hf, folder, moved = scratch / "hf", scratch / "tuned", scratch / "moved"
    before = published(hf)
    generation = json.loads((hf / "generation_config.json").read_text())
    (scratch / "text.jsonl").write_text("".join(json.dumps({"text": text * 9}) + "\n" for text in TEXTS[:3] * 9))
    run("preprocess", "--input", scratch / "text.jsonl", "--output-prefix", scratch / "d", "--append-eod",
        "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", hf)
    data = ["--data-path", scratch / "d_text_document", "--split", "1,0,0", "--seq-length", 16]
    said = run("pretrain", "gpt", "--pretrained-checkpoint", hf, *data, *STEPS, "--train-iters", 1, "--save", folder)
    assert f"tokenizer: HuggingFaceTokenizer of {hf}" in said, said
    check_opened(step(folder, 1), before, generation)
    said = run("generate", "--load", hf, "--prompt", "Hello", "--max-new-tokens", 2)
    assert "Hello" in said and f"tokenizer: HuggingFaceTokenizer of {hf}" in said, said
    check_generated(hf)
    check_generated(step(folder, 1))
    hf.rename(moved)
    said = run("pretrain", "gpt", "--load", folder, "--save", folder, *data, *STEPS, "--train-iters", 2)
    assert f"their copies in {step(folder, 1)} are read" in said, said
    check_opened(step(folder, 2), before, generation)
    said = run("generate", "--load", folder, "--prompt", "Hello, world!", "--max-new-tokens", 2)
    assert "Hello, world!" in said, said
    run("pretrain", "--config", folder / "config.yaml", "--train-iters", 3)
    check_opened(step(folder, 3), before, generation)
    run("checkpoint", "verify", folder)


older_files()
check_files("tokenizer_json", "qwen2_bpe", "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model",
            VECTORS / "qwen2_bpe.json")
check_files("gpt2", "gpt2_bpe", "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", scratch / "vocab.json",
            "--merge-file", scratch / "merges.txt")
check_files("sentencepiece", "llama2_sp_bpe", "--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model",
            VECTORS / "llama2_sp_bpe.model")
check_files("unigram", "sp_unigram", "--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model",
            VECTORS / "sp_unigram.model")
check_files("wordpiece", "bert_wordpiece", "--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file",
            scratch / "vocab.txt")
check_published()
print("published folder: ids, messages and ends stay")
