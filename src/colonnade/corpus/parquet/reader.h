// A Parquet file as JSON lines, one per row, read through the module of rows.h, which is loaded for the first
// such file: a program that reads none does not load Arrow.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "colonnade/corpus/parquet/rows.h"
#include "colonnade/corpus/text_reader.h"

namespace colonnade::corpus::parquet {

/// A line of more than `longest` bytes is padded with spaces after that, so that positions and lengths stay
/// correct. Memory: one such line and the pages of its columns. Throws DataError if the file is damaged,
/// truncated or lacks the columns, and Error if the system cannot read it or the module is missing.
std::unique_ptr<ByteReader> open(const std::filesystem::path& path, const Columns& columns,
                                 std::size_t longest);

}  // namespace colonnade::corpus::parquet
