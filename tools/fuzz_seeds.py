#!/usr/bin/env python3
"""Seeds of the fuzz targets: small files of each format. fuzz_seeds.py VECTORS FOLDER"""
import gzip
import io
import json
import pathlib
import sys
import tarfile

vectors, folder = map(pathlib.Path, sys.argv[1:])


def put(target, name, data):
    (folder / target / name).write_bytes(data if isinstance(data, bytes) else data.encode())


for path in sorted((vectors / "indexed").rglob("*.idx")):
    if path.stat().st_size < 16384:
        put("indexed_dataset", path.stem, b"\0" + path.read_bytes())
        put("indexed_dataset", path.stem + "_modes", b"\1" + path.read_bytes())

texts = (vectors / "indexed/corpus_gpt.jsonl").read_bytes()[:3000]
put("text_file", "plain", texts)
put("text_file", "gzip", gzip.compress(texts))
put("text_file", "two_members", gzip.compress(b"a\nb") + gzip.compress(b"c\n"))

numbers = [{"text": "1 2 3", "b": ["4", "5 6"]}, {"text": "", "b": []}, {"other": 1, "text": "7"}]
for flags in range(8):
    put("json_lines", f"numbers{flags}", bytes([flags]) + "\n".join(map(json.dumps, numbers)).encode())
put("json_lines", "broken", b'\2{"text": "1"\n\n{"text": 3}\n{"text": "\xff"}\n[1]\n')

talk = json.dumps({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]})
put("chat_template", "loop", "{% for m in messages %}<|{{ m['role'] }}|>{{ m.content | trim }}{% if not loop.last %},{% endif %}{%- endfor %}\0" + talk)
put("chat_template", "marks", "{%- set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content ~ ns.n }}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}\0" + talk)
put("chat_template", "macro", "{% macro f(x, y=1) %}{{ x[::-1] }}{{ y | tojson }}{% endmacro %}{{ f(messages[-1]['content'], y=[1, 'a', none]) }}{{ raise_exception('no') }}\0" + talk)
for path in sorted((vectors / "chat").rglob("*.jinja")):
    put("chat_template", path.stem, path.read_bytes() + b"\0" + talk.encode())

letters = {chr(c): i for i, c in enumerate(range(97, 123))}
base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
       "vocab": {**letters, "ab": 26, "[SEP]": 27}, "merges": ["a b"]}
piece = {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {**letters, "##b": 26}}
unigram = {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.0], ["b", -2.5], ["ab", -0.5]], "byte_fallback": False}
added = [{"id": 27, "content": "[SEP]", "single_word": False, "lstrip": False, "rstrip": True, "normalized": False, "special": True}]
for name, parts in {
    "bpe": {"model": bpe, "added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
    "piece": {"model": piece, "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}},
    "unigram": {"model": unigram, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
                "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
    "split": {"model": bpe, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": r"\p{L}+|\p{N}{1,3}|\s+(?!\S)"}, "behavior": "Isolated", "invert": False}, {"type": "Digits", "individual_digits": True}]},
              "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {}}},
}.items():
    put("tokenizer_json", name, json.dumps({**base, **parts}))


def safetensors(header, data):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


put("safetensors", "two", safetensors({"a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, "b": {"dtype": "BF16", "shape": [], "data_offsets": [8, 10]}}, bytes(10)))
put("safetensors", "metadata", safetensors({"__metadata__": {"format": "pt"}, "a": {"dtype": "I64", "shape": [0], "data_offsets": [0, 0]}}, b""))


def shard(members, style):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style) as tar:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return out.getvalue()


pixel = (vectors / "images/pixel.png").read_bytes()
members = [("a/0.png", pixel), ("a/0.txt", b"a caption"), ("1.png", pixel), ("1.json", b'{"caption": "two"}'), ("d" * 90 + "/" + "n" * 90 + ".txt", b"")]
for style in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
    put("tar_shard", f"style{style}", shard(members, style)[:8192])
for path in sorted((vectors / "images").glob("*.[jp][pn]g")):
    if path.stat().st_size < 16384:
        put("image_file", path.name, path.read_bytes())

for path in sorted((vectors / "megatron_ckpt").rglob(".metadata")):
    metadata = path.read_bytes()
    put("pickle", path.parent.parent.name + path.parent.name, metadata)
    if len(metadata) < 16384:
        put("distributed_folder", path.parent.parent.name + path.parent.name, len(metadata).to_bytes(2, "little") + metadata)

def torch_file(pickle, storage):
    """A zip as torch.save writes it: uncompressed entries."""
    import zipfile
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", pickle)
        z.writestr("archive/byteorder", "little")
        z.writestr("archive/data/0", storage)
    return out.getvalue()


C = b"ctorch.distributed.checkpoint.metadata\n"
tensor = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQK\0(K\x04t(K\x01t\x89NtR."
segment = torch_file(tensor, b"\0" * 16)


def text(word):
    return b"X" + len(word).to_bytes(4, "little") + word.encode()


def size(n):
    return b"ctorch\nSize\n(K" + bytes([n]) + b"t\x85R"


def made(name, *pairs, module=C):
    return module + name.encode() + b"\n)\x81}(" + b"".join(text(k) + v for k, v in pairs) + b"ub"


whole = b"\x80\x02" + made("Metadata",
    ("state_dict_metadata", b"}(" + text("w") + made("TensorStorageMetadata",
        ("properties", C + b"TensorProperties\n)\x81(ctorch\nfloat32\nNNNNtb"), ("size", size(4)),
        ("chunks", b"]")) + b"u"),
    ("storage_data", b"}(" + made("MetadataIndex", ("fqn", text("w")), ("offset", size(0)), ("index", b"K\0"))
        + made("_StorageInfo", ("relative_path", text("__0_0.distcp")), ("offset", b"K\0"), ("length", b"M" + len(segment).to_bytes(2, "little")),
               module=b"ctorch.distributed.checkpoint.filesystem\n") + b"u")) + b"."
put("distributed_folder", "whole", len(whole).to_bytes(2, "little") + whole + segment)
