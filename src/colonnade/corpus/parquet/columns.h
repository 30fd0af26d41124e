// Columns of a row group put together to rows: Dremel's definition and repetition levels become values, lists
// and structs in JSON. Part of the module that sees Arrow.
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

/// The file cannot be used; holds the whole message but for its name.
class Unusable final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The file breaks its own rules.
class Damaged final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Text of a row, cut at a length.
class Text {
 public:
  Text(Row& row, std::size_t longest) : row_(row), longest_(longest) {}
  void add(std::string_view text);
  /// In quotes, with what JSON asks to be escaped.
  void add_string(std::string_view text);

 private:
  Row& row_;
  std::size_t longest_;
};

/// Levels and values of a leaf of the schema, in turn, within a row group.
class Leaf {
 public:
  Leaf() = default;
  Leaf(const Leaf&) = delete;
  Leaf& operator=(const Leaf&) = delete;
  virtual ~Leaf() = default;
  /// Whether the row group holds no more.
  bool at_end() { return at_ == size_ && !fill(); }
  /// Levels of the entry it is at; Damaged at the end.
  int definition() { return at_end() ? ended() : definitions_[at_]; }
  int repetition() { return at_end() ? ended() : repetitions_[at_]; }
  void next();
  /// The value of the entry it is at, whose definition level says that there is one.
  virtual void write(Text& text) const = 0;

 protected:
  static constexpr std::int64_t kBatch = 256;

  explicit Leaf(const ::parquet::ColumnDescriptor& about)
      : full_(about.max_definition_level()), deepest_(about.max_repetition_level()) {}
  [[nodiscard]] std::size_t value() const { return value_; }
  /// Entries read; the number of values goes to `values`.
  virtual std::int64_t read(std::int16_t* definitions, std::int16_t* repetitions, std::int64_t& values) = 0;

 private:
  bool fill();
  [[noreturn]] static int ended();

  int full_ = 0, deepest_ = 0;  // the highest levels
  std::vector<std::int16_t> definitions_ = std::vector<std::int16_t>(kBatch);
  std::vector<std::int16_t> repetitions_ = std::vector<std::int16_t>(kBatch);
  std::size_t at_ = 0, size_ = 0, value_ = 0;
};

/// A column at the top of the schema, or a part of it.
struct Node {
  enum Kind : std::uint8_t { kLeaf, kList, kStruct };
  Kind kind = kLeaf;
  std::string name;  ///< as the schema has it
  bool nullable = false;
  int defined = 0;                  ///< definition level from which it is not null
  int filled = 0;                   ///< of a list: from which it has items
  int repeated = 0;                 ///< of a list: repetition level of items but the first
  std::size_t first = 0, last = 0;  ///< its leaves
  std::vector<Node> parts;
};

/// The columns of a schema that were asked for.
struct Shape {
  std::vector<Node> columns;
  std::vector<int> leaves;  ///< numbers of Parquet's columns
};

/// Throws Unusable when no column has one of the names, or one has a type that cannot be taken.
Shape shape_of(const ::parquet::SchemaDescriptor& schema, const Columns& columns);

/// The rows of a row group.
class RowGroup {
 public:
  RowGroup(std::shared_ptr<::parquet::RowGroupReader> group, const Shape& shape);
  /// Throws Damaged when columns do not fit each other.
  void write(Row& row, std::size_t longest);
  void pass_over();
  /// Throws Damaged when columns hold more.
  void expect_end();

 private:
  void expect_row_begin();
  void write(const Node& node, Text& text);
  void write(const std::vector<Node>& parts, Text& text);
  /// Asks each leaf of a node; they must agree.
  template <typename Ask>
  bool agree(const Node& node, Ask&& ask);

  std::shared_ptr<::parquet::RowGroupReader> group_;
  const Shape& shape_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
};

}  // namespace colonnade::corpus::parquet
