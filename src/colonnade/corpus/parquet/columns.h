// Assembles the columns of a row group into rows: Dremel's definition and repetition levels become values,
// lists and structs in JSON. Part of the module that uses Arrow.
#pragma once

#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/corpus/parquet/rows.h"

namespace colonnade::corpus::parquet {

/// The file is not usable; the message lacks only the file name.
class Unusable final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The file violates the Parquet format.
class Damaged final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writer of a row's JSON text, truncated at a maximum length.
class RowWriter {
 public:
  RowWriter(Row& row, std::size_t longest) : row_(row), longest_(longest) {}
  void add(std::string_view text);
  /// Adds a quoted string with JSON escapes.
  void add_string(std::string_view text);

 private:
  Row& row_;
  std::size_t longest_;
};

/// Iterator over the levels and values of a leaf column within a row group.
class Leaf {
 public:
  Leaf() = default;
  Leaf(const Leaf&) = delete;
  Leaf& operator=(const Leaf&) = delete;
  virtual ~Leaf() = default;
  /// Whether the row group has no more entries.
  bool at_end() { return at_ == size_ && !fill(); }
  /// Levels of the current entry; Damaged at the end.
  int definition() { return at_end() ? ended() : definitions_[at_]; }
  int repetition() { return at_end() ? ended() : repetitions_[at_]; }
  void next();
  /// Writes the value of the current entry, whose definition level says that there is one.
  virtual void write(RowWriter& text) const = 0;

 protected:
  static constexpr std::int64_t kBatch = 256;

  explicit Leaf(const ::parquet::ColumnDescriptor& about)
      : max_definition_(about.max_definition_level()), max_repetition_(about.max_repetition_level()) {}
  [[nodiscard]] std::size_t value() const { return value_; }
  /// Reads a batch and returns its number of entries; the number of values goes to `values`.
  virtual std::int64_t read(std::int16_t* definitions, std::int16_t* repetitions, std::int64_t& values) = 0;

 private:
  bool fill();
  [[noreturn]] static int ended();

  int max_definition_ = 0, max_repetition_ = 0;
  std::vector<std::int16_t> definitions_ = std::vector<std::int16_t>(kBatch);
  std::vector<std::int16_t> repetitions_ = std::vector<std::int16_t>(kBatch);
  std::size_t at_ = 0, size_ = 0, value_ = 0;
};

/// A top-level column of the schema, or a child of one.
struct Node {
  enum Kind : std::uint8_t { kLeaf, kList, kStruct };
  Kind kind = kLeaf;
  std::string name;  ///< name in the schema
  bool nullable = false;
  int non_null_level = 0;           ///< minimum definition level of a non-null value
  int items_level = 0;              ///< lists: minimum definition level of a non-empty list
  int repetition_level = 0;         ///< lists: repetition level of items except the first
  std::size_t first = 0, last = 0;  ///< range of its leaves
  std::vector<Node> children;
};

/// The selected columns of a schema.
struct Shape {
  std::vector<Node> columns;
  std::vector<int> leaves;  ///< Parquet column indices
};

/// Throws Unusable if no column has one of the names, or if one has an unsupported type.
Shape shape_of(const ::parquet::SchemaDescriptor& schema, const Columns& columns);

/// The rows of a row group.
class RowGroup {
 public:
  RowGroup(std::shared_ptr<::parquet::RowGroupReader> group, const Shape& shape);
  /// Writes the next row. Throws Damaged for inconsistent columns.
  void write(Row& row, std::size_t longest);
  void skip_row();
  /// Throws Damaged if columns have more rows.
  void expect_end();

 private:
  void expect_row_begin();
  void write(const Node& node, RowWriter& text);
  void write(const std::vector<Node>& children, RowWriter& text);
  /// Evaluates a predicate on each leaf of a node; the results must agree.
  template <typename Ask>
  bool agree(const Node& node, Ask&& ask);

  std::shared_ptr<::parquet::RowGroupReader> group_;
  const Shape& shape_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
};

}  // namespace colonnade::corpus::parquet
