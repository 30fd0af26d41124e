#!/usr/bin/env python3
"""Makes tests/vectors/parquet by pyarrow (26.0.1): the rows of rows.jsonl and chat.jsonl in the ways that writers have.

    .venv/bin/python tests/data/parquet_vectors.py tests/vectors/parquet
"""
import json
import pathlib
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(sys.argv[1])
PIECES = ['plain', 'a "quote"', "back\\slash", "tab\tline\nreturn\r", "null\0 and \x1f\x7f", "größer 中文 🙂 \u2028", "", " "]


def rows(count: int) -> list[dict]:
    draw = random.Random(7)
    numbers = lambda most: " ".join(str(draw.randrange(256)) for _ in range(draw.randrange(most)))
    return [{"id": i,
             "text": " ".join(draw.choice(PIECES) for _ in range(draw.randrange(5))),
             "numbers": numbers(30),
             "parts": [numbers(6) for _ in range(draw.randrange(4))]} for i in range(count)]


def chats(count: int) -> list[dict]:
    draw = random.Random(8)
    message = lambda role: {"role": role, "content": draw.choice(PIECES) + str(draw.randrange(1000)),
                            "score": draw.choice([None, 0.5, 3.0]), "seen": draw.choice([True, False]),
                            "count": draw.choice([-(1 << 62), 0, 7]), "tags": draw.choice([None, [], ["a", None]])}
    return [{"messages": [message(("user", "assistant")[k % 2]) for k in range(2 * draw.randrange(1, 4))],
             "source": "made"} for _ in range(count)]


def lines(path: str, objects: list[dict]) -> None:
    (OUT / path).write_text("".join(json.dumps(each) + "\n" for each in objects))


def write(path: str, table: pa.Table, **how) -> None:
    pq.write_table(table, OUT / path, **how)


def main() -> None:
    many, strings = rows(200), pa.string()
    lines("rows.jsonl", many)

    def table(text: pa.DataType, parts: pa.DataType) -> pa.Table:
        return pa.Table.from_pylist(many, pa.schema([("id", pa.int64()), ("text", text), ("numbers", text), ("parts", parts)]))

    usual = table(strings, pa.list_(strings))
    write("snappy.parquet", usual, row_group_size=60)
    write("zstd_v2.parquet", usual, compression="zstd", data_page_version="2.0", data_page_size=300, write_batch_size=8,
          row_group_size=90)
    large = pa.large_string()
    write("gzip_large.parquet", table(large, pa.large_list(large)), compression="gzip", use_dictionary=False)
    write("none_small_pages.parquet", usual, compression="none", use_dictionary=False, data_page_size=200, write_batch_size=4)
    write("brotli_delta.parquet", usual, compression="brotli", use_dictionary=False,
          column_encoding={"text": "DELTA_BYTE_ARRAY", "numbers": "DELTA_LENGTH_BYTE_ARRAY"})
    write("lz4_dictionary.parquet", table(pa.dictionary(pa.int32(), strings), pa.list_(strings)), compression="lz4",
          use_compliant_nested_type=False)
    required = pa.schema([pa.field("numbers", strings, nullable=False), pa.field(
        "parts", pa.list_(pa.field("element", strings, nullable=False)), nullable=False)])
    write("required.parquet", pa.Table.from_pylist([{k: r[k] for k in required.names} for r in many], required))
    write("no_rows.parquet", usual.slice(0, 0))
    write("checked.parquet", usual.slice(0, 30), row_group_size=11, write_page_checksum=True)
    write("unchecked.parquet", usual.slice(0, 30), row_group_size=11, compression="none", use_dictionary=False)

    write("nulls.parquet", pa.table({
        "numbers": ["1 2", None, "3", None, "", "4"],
        "parts": pa.array([["1"], ["2"], None, [], ["3", None], ["5"]], pa.list_(strings))}), row_group_size=4)
    not_utf8 = pa.Array.from_buffers(strings, 3, [None, *pa.array([b"1", b"\xff\xfe", b"2"], pa.binary()).buffers()[1:]])
    write("not_utf8.parquet", pa.table({"numbers": not_utf8}))
    write("types.parquet", pa.table({
        "whole": [1], "bytes": pa.array([b"1"], pa.binary()), "time": pa.array([1], pa.timestamp("s")),
        "record": [{"a": "1"}], "deep": [[["1"]]], "wholes": [[1]],
        "pairs": pa.array([[("a", "1")]], pa.map_(strings, strings)), "decimal": pa.array([1], pa.decimal128(5))}))
    write("repeated_megabyte.parquet", pa.table({"numbers": ["7" * (1 << 20)] * 500 + ["1 2"]}), compression="zstd",
          dictionary_pagesize_limit=1 << 22, write_statistics=False)
    write("page_of_400_mb.parquet", pa.table({"numbers": ["7" * (400 << 20)]}), compression="zstd", use_dictionary=False,
          write_statistics=False)

    talks = chats(40)
    lines("chat.jsonl", talks)
    message = pa.struct([("role", strings), ("content", strings), ("score", pa.float64()), ("seen", pa.bool_()),
                         ("count", pa.int64()), ("tags", pa.list_(strings))])
    write("chat.parquet", pa.Table.from_pylist(talks, pa.schema([("messages", pa.list_(message)), ("source", strings)])),
          row_group_size=16)


main()
