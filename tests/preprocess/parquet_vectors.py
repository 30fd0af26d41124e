#!/usr/bin/env python3
"""Makes tests/vectors/parquet by pyarrow (26.0.1): the rows of rows.jsonl and chat.jsonl in the ways that writers have.

    .venv/bin/python tests/preprocess/parquet_vectors.py tests/vectors/parquet
"""
import io
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


class Footer:
    """A file's footer, whose schema may be changed where levels and values stay the same: what pyarrow does not write.

    In Thrift's compact protocol; a struct is {field: (type, value)}, a list (type, values), a number its bytes' number.
    """
    REPETITION, NAME, CHILDREN, REPEATED = 3, 4, 5, 4

    def __init__(self, path: str):
        self.path = OUT / path
        whole = self.path.read_bytes()
        size = int.from_bytes(whole[-8:-4], "little")
        self.data, self.file = whole[:-8 - size], self._get(io.BytesIO(whole[-8 - size:-8]), 12)
        elements = iter(self.file[2][1][1])
        self.root = self._node(elements)

    def column(self, name: str) -> dict:
        return next(node for node in self.root["parts"] if node["about"][self.NAME][1] == name.encode())

    def rename(self, node: dict, name: str) -> None:
        node["about"][self.NAME] = (8, name.encode())

    def repeat(self, node: dict, name: str) -> dict:
        node["about"][self.REPETITION] = (5, self.REPEATED)
        self.rename(node, name)
        return node

    def fold(self, node: dict, name: str) -> dict:
        """Two levels of three: the item, which must not be null, becomes what is repeated."""
        node["parts"] = [self.repeat(node["parts"][0]["parts"][0], name)]
        return node["parts"][0]

    def write(self) -> None:
        elements, paths = [], []
        self._flatten(self.root, [], elements, paths)
        self.file[2] = (9, (12, elements))
        for group in self.file[4][1][1]:
            for column, path in zip(group[1][1][1], paths, strict=True):
                column[3][1][3] = (9, (8, path))
        out = io.BytesIO()
        self._put(out, 12, self.file)
        footer = out.getvalue()
        self.path.write_bytes(self.data + footer + len(footer).to_bytes(4, "little") + b"PAR1")

    def _node(self, elements) -> dict:
        about = next(elements)
        count = about.get(self.CHILDREN, (5, 0))[1] // 2
        return {"about": about, "parts": [self._node(elements) for _ in range(count)]}

    def _flatten(self, node: dict, path: list, elements: list, paths: list) -> None:
        if node["parts"]:
            node["about"][self.CHILDREN] = (5, 2 * len(node["parts"]))
        elements.append(node["about"])
        for part in node["parts"]:
            self._flatten(part, path + [part["about"][self.NAME][1]], elements, paths)
        if not node["parts"]:
            paths.append(path)

    def _number(self, file) -> int:
        byte = file.read(1)[0]
        return byte if byte < 128 else byte - 128 + (self._number(file) << 7)

    def _get(self, file, kind: int):
        if kind in (1, 2):
            return None
        if kind in (4, 5, 6):
            return self._number(file)
        if kind == 8:
            return file.read(self._number(file))
        if kind == 9:
            head = file.read(1)[0]
            count = head >> 4 if head >> 4 < 15 else self._number(file)
            return head & 15, [self._get(file, head & 15) for _ in range(count)]
        assert kind == 12, kind
        struct, field = {}, 0
        while head := file.read(1)[0]:
            assert head >> 4, "fields come in order"
            field += head >> 4
            struct[field] = head & 15, self._get(file, head & 15)
        return struct

    def _put_number(self, file, number: int) -> None:
        while number > 127:
            file.write(bytes([number % 128 + 128]))
            number >>= 7
        file.write(bytes([number]))

    def _put(self, file, kind: int, value) -> None:
        if kind in (4, 5, 6):
            self._put_number(file, value)
        elif kind == 8:
            self._put_number(file, len(value))
            file.write(value)
        elif kind == 9:
            items, values = value
            file.write(bytes([min(len(values), 15) << 4 | items]))
            if len(values) > 14:
                self._put_number(file, len(values))
            for each in values:
                self._put(file, items, each)
        elif kind == 12:
            last = 0
            for field, (kind_of, each) in sorted(value.items()):
                file.write(bytes([(field - last) << 4 | kind_of]))
                self._put(file, kind_of, each)
                last = field
            file.write(b"\0")


def older_lists(many: list[dict], talks: list[dict], message: pa.DataType) -> None:
    """Lists as writers had them before Parquet's three levels; pyarrow must read them as they were."""
    strings = pa.string()
    item = lambda of: pa.field("element", of, nullable=False)

    def made(path: str, objects: list[dict], change, **columns) -> None:
        write(path, pa.Table.from_pylist([{k: each[k] for k in columns} for each in objects], pa.schema(
            [pa.field(k, t, nullable=k != "bare") for k, t in columns.items()])), store_schema=False, row_group_size=70)
        footer = Footer(path)
        change(footer)
        footer.write()

    def check(path: str, objects: list[dict]) -> None:
        assert pq.read_table(OUT / path).to_pylist() == objects, path

    texts = [{"numbers": each["numbers"], "parts": each["parts"]} for each in many]

    def bag(footer: Footer) -> None:
        group = footer.column("parts")["parts"][0]
        footer.rename(group, "bag")
        footer.rename(group["parts"][0], "array_element")
    made("lists_bag.parquet", texts, bag, numbers=strings, parts=pa.list_(strings))
    check("lists_bag.parquet", texts)
    made("lists_two_levels.parquet", texts, lambda footer: footer.fold(footer.column("parts"), "array"),
         numbers=strings, parts=pa.list_(item(strings)))
    check("lists_two_levels.parquet", texts)

    def bare(footer: Footer) -> None:
        footer.root["parts"][1] = footer.repeat(footer.column("bare")["parts"][0]["parts"][0], "parts")
    made("lists_bare.parquet", [each | {"bare": each["parts"]} for each in texts], bare,
         numbers=strings, bare=pa.list_(item(strings)))
    check("lists_bare.parquet", texts)

    def messages(footer: Footer) -> None:
        footer.fold(footer.column("messages"), "array")
    made("chat_two_levels.parquet", talks, messages, messages=pa.list_(item(message)))
    check("chat_two_levels.parquet", [{"messages": each["messages"]} for each in talks])

    one = [{"a": "1"}, {"a": None}]
    nested = [{"array": one, "named": one, "other": one, "deep": [["1", "2"], []], "structs": [["3"]]},
              {"array": [], "named": None, "other": None, "deep": None, "structs": []}]

    def groups(footer: Footer) -> None:
        footer.fold(footer.column("array"), "array")
        footer.fold(footer.column("named"), "named_tuple")
        footer.fold(footer.column("other"), "bag")
        footer.fold(footer.fold(footer.column("deep"), "element"), "array")
        inner = footer.fold(footer.column("structs"), "element")
        footer.fold(inner, "items")
        del inner["about"][6], inner["about"][10]  # a group, not a list
    record, lists = pa.struct([("a", strings)]), pa.list_(item(strings))
    made("lists_of_groups.parquet", nested, groups, array=pa.list_(item(record)), named=pa.list_(item(record)),
         other=pa.list_(item(record)), deep=pa.list_(item(lists)), structs=pa.list_(item(lists)))
    nested[0]["other"] = ["1", None]  # one part of another name is the item
    nested[0]["structs"] = [{"items": ["3"]}]
    check("lists_of_groups.parquet", nested)


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
    for path, sizes in {"no_groups.parquet": [], "empty_groups.parquet": [0, 0, 70, 0, 0, 130, 0]}.items():
        begin = 0
        with pq.ParquetWriter(OUT / path, usual.schema) as writer:
            for size in sizes:
                writer.write_table(usual.slice(begin, size))
                begin += size
        assert pq.read_metadata(OUT / path).num_row_groups == len(sizes)
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
        "pairs": pa.array([[("a", "1")]], pa.map_(strings, strings)), "decimal": pa.array([1], pa.decimal128(5)),
        **{name: pa.array([1], type) for name, type in {
            "tiny": pa.int8(), "unsigned": pa.uint32(), "large_unsigned": pa.uint64(), "half": pa.float16(), "single": pa.float32(),
            "double": pa.float64(), "date": pa.date32(), "clock": pa.time64("us")}.items()}, "truth": [True]}))
    write("numbers.parquet", pa.table({
        "tiny": pa.array([-128, 127, None], pa.int8()), "small": pa.array([0, 255, None], pa.uint8()),
        "whole": pa.array([-1 << 31, (1 << 31) - 1, None], pa.int32()), "unsigned": pa.array([0, (1 << 32) - 1, None], pa.uint32()),
        "long": pa.array([-1 << 63, (1 << 63) - 1, None], pa.int64()),
        "large_unsigned": pa.array([0, (1 << 64) - 1, None], pa.uint64()),
        "single": pa.array([3, 0.25, float("nan")], pa.float32()), "double": pa.array([-0.0, 0.1, None], pa.float64()),
        "truth": [True, False, None]}))
    write("not_finite.parquet", pa.table({"double": [1.0, float("inf")]}))
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
    older_lists(many, talks, message)


main()
