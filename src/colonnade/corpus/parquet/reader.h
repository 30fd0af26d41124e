// A Parquet file as lines of JSON, one for each row, read through the module of rows.h, which is loaded for
// the first such file: a program that reads none never sees Arrow.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "colonnade/corpus/parquet/rows.h"
#include "colonnade/corpus/text_reader.h"

namespace colonnade::corpus::parquet {

/// Of a line of more than `longest` bytes the rest is filled up, so that places and lengths stay right.
/// Memory: one such line and the pages of the columns that it lies in. Throws DataError when the file is
/// damaged, cut, or has not the columns, and Error when the system cannot read it or the module is missing.
std::unique_ptr<ByteReader> open(const std::filesystem::path& path, const Columns& columns,
                                 std::size_t longest);

}  // namespace colonnade::corpus::parquet
