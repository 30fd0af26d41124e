// See columns.h.
#include "colonnade/corpus/parquet/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <parquet/column_reader.h>
#include <parquet/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

namespace colonnade::corpus::parquet {
namespace {

namespace pq = ::parquet;

void add_value(RowWriter& text, bool value) { text.add(value ? "true" : "false"); }
void add_value(RowWriter& text, std::int64_t value) { text.add(fmt::format_int(value).str()); }
void add_value(RowWriter& text, std::uint64_t value) { text.add(fmt::format_int(value).str()); }
void add_value(RowWriter& text, std::uint32_t value) { text.add(fmt::format_int(value).str()); }
/// NaN is how data frames represent a missing number; JSON has neither NaN nor infinities.
void add_value(RowWriter& text, double value) {
  if (std::isnan(value)) return text.add("null");
  if (std::isinf(value))
    throw Unusable(fmt::format("numbers must be finite; got {} in a row; write another value", value));
  std::string digits = fmt::format("{}", value);
  if (digits.find_first_not_of("-0123456789") == std::string::npos) digits += ".0";
  text.add(digits);
}
void add_value(RowWriter& text, const pq::ByteArray& value) {
  text.add_string({reinterpret_cast<const char*>(value.ptr), value.len});
}

/// `As` is the type to which values of the physical type are converted.
template <typename Type, typename As>
class LeafOf final : public Leaf {
 public:
  using Value = typename Type::c_type;

  explicit LeafOf(const std::shared_ptr<pq::ColumnReader>& reader)
      : Leaf(*reader->descr()), reader_(std::static_pointer_cast<pq::TypedColumnReader<Type>>(reader)) {}
  void write(RowWriter& text) const override {
    if constexpr (std::is_same_v<As, pq::ByteArray>)
      add_value(text, values_[value()]);
    else
      add_value(text, static_cast<As>(values_[value()]));
  }

 private:
  std::int64_t read(std::int16_t* definitions, std::int16_t* repetitions, std::int64_t& values) override {
    // Values point into their page, and a batch does not cross pages.
    return reader_->HasNext() ? reader_->ReadBatch(kBatch, definitions, repetitions, values_.data(), &values)
                              : 0;
  }

  std::shared_ptr<pq::TypedColumnReader<Type>> reader_;
  std::array<Value, kBatch> values_{};
};

bool is_text(const pq::schema::Node& node) {
  const auto& logical = node.logical_type();
  return static_cast<const pq::schema::PrimitiveNode&>(node).physical_type() == pq::Type::BYTE_ARRAY &&
         (logical->is_string() || logical->is_enum() || logical->is_JSON());
}

bool is_number(const pq::schema::Node& node) {
  const auto& logical = node.logical_type();
  switch (static_cast<const pq::schema::PrimitiveNode&>(node).physical_type()) {
    case pq::Type::BOOLEAN:
    case pq::Type::FLOAT:
    case pq::Type::DOUBLE:
      return !logical->is_valid() || logical->is_none();
    case pq::Type::INT32:
    case pq::Type::INT64:
      return !logical->is_valid() || logical->is_none() || logical->is_int();
    default:
      return false;
  }
}

std::unique_ptr<Leaf> make_leaf(const std::shared_ptr<pq::ColumnReader>& reader) {
  const auto& logical = reader->descr()->logical_type();
  const bool is_unsigned = logical->is_int() && !static_cast<const pq::IntLogicalType&>(*logical).is_signed();
  switch (reader->type()) {
    case pq::Type::BYTE_ARRAY:
      return std::make_unique<LeafOf<pq::ByteArrayType, pq::ByteArray>>(reader);
    case pq::Type::BOOLEAN:
      return std::make_unique<LeafOf<pq::BooleanType, bool>>(reader);
    case pq::Type::FLOAT:
      return std::make_unique<LeafOf<pq::FloatType, double>>(reader);
    case pq::Type::DOUBLE:
      return std::make_unique<LeafOf<pq::DoubleType, double>>(reader);
    case pq::Type::INT32:
      if (is_unsigned) return std::make_unique<LeafOf<pq::Int32Type, std::uint32_t>>(reader);
      return std::make_unique<LeafOf<pq::Int32Type, std::int64_t>>(reader);
    case pq::Type::INT64:
      if (is_unsigned) return std::make_unique<LeafOf<pq::Int64Type, std::uint64_t>>(reader);
      return std::make_unique<LeafOf<pq::Int64Type, std::int64_t>>(reader);
    default:
      throw Damaged("a column whose type is not that of its schema");
  }
}

/// Converts columns of the schema to Nodes.
class SchemaConverter {
 public:
  SchemaConverter(const pq::SchemaDescriptor& schema, const Columns& columns, Shape& shape)
      : schema_(schema), columns_(columns), shape_(shape) {}

  Node column(const pq::schema::Node& field) {
    column_ = field.name();
    Node node = child(field, 0, 0);
    const Node* text = node.kind == Node::kList ? node.children.data() : &node;
    if (columns_.texts_only && text->kind != Node::kLeaf) throw_unsupported(field);
    return node;
  }

 private:
  /// A field with its own repetition: optional or repeated.
  Node child(const pq::schema::Node& field, int definition, int repetition) {
    if (field.is_repeated()) return list(field, field, definition, repetition);
    Node node = value(field, definition + (field.is_optional() ? 1 : 0), repetition);
    node.nullable = field.is_optional();
    return node;
  }

  Node value(const pq::schema::Node& field, int definition, int repetition) {
    if (field.is_group()) {
      const auto& group = static_cast<const pq::schema::GroupNode&>(field);
      if (field.logical_type()->is_map() || group.field_count() == 0) throw_unsupported(field);
      if (field.logical_type()->is_list() && group.field_count() == 1 && group.field(0)->is_repeated())
        return list(field, *group.field(0), definition, repetition);
    }
    Node node;
    node.name = field.name();
    node.non_null_level = definition;
    node.first = shape_.leaves.size();
    if (field.is_group()) {
      const auto& group = static_cast<const pq::schema::GroupNode&>(field);
      node.kind = Node::kStruct;
      for (int i = 0; i < group.field_count(); ++i)
        node.children.push_back(child(*group.field(i), definition, repetition));
    } else {
      if (!is_text(field) && (columns_.texts_only || !is_number(field))) throw_unsupported(field);
      shape_.leaves.push_back(schema_.ColumnIndex(field));
    }
    node.last = shape_.leaves.size();
    return node;
  }

  /// `repeated` is the group or value that occurs once per item. Parquet's backward compatibility rules tell
  /// by its name whether older writers mean the group or its only field as the item.
  Node list(const pq::schema::Node& field, const pq::schema::Node& repeated, int definition, int repetition) {
    Node node;
    node.kind = Node::kList;
    node.name = field.name();
    node.non_null_level = definition;
    node.items_level = definition + 1;
    node.repetition_level = repetition + 1;
    node.first = shape_.leaves.size();
    const auto* group = repeated.is_group() ? static_cast<const pq::schema::GroupNode*>(&repeated) : nullptr;
    const bool wrapped = &field != &repeated && group != nullptr && group->field_count() == 1 &&
                         !group->field(0)->is_repeated() && repeated.name() != "array" &&
                         repeated.name() != field.name() + "_tuple";
    node.children.push_back(wrapped ? child(*group->field(0), definition + 1, repetition + 1)
                                    : value(repeated, definition + 1, repetition + 1));
    node.last = shape_.leaves.size();
    return node;
  }

  [[noreturn]] void throw_unsupported(const pq::schema::Node& field) const {
    const auto& logical = field.logical_type();
    std::string type = "struct";
    if (!logical->is_none() && logical->is_valid())
      type = logical->ToString();
    else if (field.is_primitive())
      type = pq::TypeToString(static_cast<const pq::schema::PrimitiveNode&>(field).physical_type());
    throw Unusable(fmt::format(
        "the column '{}' must be {}; got {}{}; cast it, or name another column", column_,
        columns_.texts_only ? "a string or a list of strings"
                            : "of strings, numbers, booleans, lists and structs",
        type, field.name() == column_ ? "" : fmt::format(" in '{}'", field.path()->ToDotString())));
  }

  const pq::SchemaDescriptor& schema_;
  const Columns& columns_;
  Shape& shape_;
  std::string column_;
};

}  // namespace

void RowWriter::add(std::string_view text) {
  const std::size_t kept = std::min(text.size(), longest_ - std::min(longest_, row_.text.size()));
  row_.text.append(text.substr(0, kept));
  row_.dropped += text.size() - kept;
}

void RowWriter::add_string(std::string_view text) {
  static constexpr auto kEscaped = [] {
    std::array<bool, 256> escaped{};
    for (int c = 0; c < 0x20; ++c) escaped[static_cast<std::size_t>(c)] = true;
    escaped['"'] = escaped['\\'] = true;
    return escaped;
  }();
  add("\"");
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!kEscaped[c]) continue;
    add(text.substr(begin, i - begin));
    begin = i + 1;
    switch (c) {
      case '"':
        add("\\\"");
        break;
      case '\\':
        add("\\\\");
        break;
      case '\n':
        add("\\n");
        break;
      case '\t':
        add("\\t");
        break;
      case '\r':
        add("\\r");
        break;
      default:
        add(fmt::format("\\u{:04x}", c));
    }
  }
  add(text.substr(begin));
  add("\"");
}

int Leaf::ended() { throw Damaged("a column that has fewer rows than its row group"); }

bool Leaf::fill() {
  std::int64_t values = 0;
  const std::int64_t entries = read(definitions_.data(), repetitions_.data(), values);
  at_ = value_ = 0;
  size_ = static_cast<std::size_t>(entries);
  // Levels that are always 0 are not stored.
  if (max_definition_ == 0) std::fill_n(definitions_.begin(), size_, std::int16_t{0});
  if (max_repetition_ == 0) std::fill_n(repetitions_.begin(), size_, std::int16_t{0});
  if (values != std::count(definitions_.begin(), definitions_.begin() + entries, max_definition_))
    throw Damaged("a column with more or fewer values than its levels say");
  return size_ > 0;
}

void Leaf::next() {
  if (definition() == max_definition_) ++value_;
  ++at_;
}

Shape shape_of(const pq::SchemaDescriptor& schema, const Columns& columns) {
  Shape shape;
  SchemaConverter converter(schema, columns, shape);
  std::vector<std::string> present;
  for (int i = 0; i < schema.group_node()->field_count(); ++i) {
    const pq::schema::Node& field = *schema.group_node()->field(i);
    if (present.size() < 20) present.push_back(field.name());
    if (std::ranges::find(columns.names, field.name()) != columns.names.end())
      shape.columns.push_back(converter.column(field));
  }
  if (shape.columns.empty())
    throw Unusable(fmt::format("must have a column '{}'; got {}; name the right one",
                               fmt::join(columns.names, "' or '"),
                               present.empty() ? "none" : fmt::format("{}", fmt::join(present, ", "))));
  return shape;
}

RowGroup::RowGroup(std::shared_ptr<pq::RowGroupReader> group, const Shape& shape)
    : group_(std::move(group)), shape_(shape) {
  for (const int column : shape.leaves) leaves_.push_back(make_leaf(group_->Column(column)));
}

template <typename Ask>
bool RowGroup::agree(const Node& node, Ask&& ask) {
  const bool answer = ask(*leaves_[node.first]);
  for (std::size_t i = node.first + 1; i < node.last; ++i)
    if (ask(*leaves_[i]) != answer) throw Damaged(fmt::format("inconsistent fields of '{}'", node.name));
  return answer;
}

void RowGroup::expect_row_begin() {
  for (const auto& leaf : leaves_)
    if (leaf->repetition() != 0) throw Damaged("columns with inconsistent rows");
}

void RowGroup::write(Row& row, std::size_t longest) {
  row.text.clear();
  row.dropped = 0;
  expect_row_begin();
  RowWriter text(row, longest);
  write(shape_.columns, text);
}

void RowGroup::write(const std::vector<Node>& children, RowWriter& text) {
  const char* before = "{";
  for (const Node& child : children) {
    text.add(std::exchange(before, ","));
    text.add_string(child.name);
    text.add(":");
    write(child, text);
  }
  text.add("}");
}

void RowGroup::write(const Node& node, RowWriter& text) {
  const auto reaches = [&](int level) {
    return agree(node, [level](Leaf& leaf) { return leaf.definition() >= level; });
  };
  const auto write_word = [&](const char* word) {
    text.add(word);
    for (std::size_t i = node.first; i < node.last; ++i) leaves_[i]->next();
  };
  if (!reaches(node.non_null_level)) {
    if (!node.nullable) throw Damaged(fmt::format("no value of the required column '{}'", node.name));
    return write_word("null");
  }
  if (node.kind == Node::kLeaf) {
    leaves_[node.first]->write(text);
    return leaves_[node.first]->next();
  }
  if (node.kind == Node::kStruct) return write(node.children, text);
  if (!reaches(node.items_level)) return write_word("[]");
  const char* before = "[";
  const auto continues = [&node](Leaf& leaf) {
    return !leaf.at_end() && leaf.repetition() == node.repetition_level;
  };
  do {
    text.add(std::exchange(before, ","));
    write(node.children.front(), text);
  } while (agree(node, continues));
  text.add("]");
}

void RowGroup::skip_row() {
  expect_row_begin();
  for (const auto& leaf : leaves_) do
      leaf->next();
    while (!leaf->at_end() && leaf->repetition() != 0);
}

void RowGroup::expect_end() {
  for (const auto& leaf : leaves_)
    if (!leaf->at_end()) throw Damaged("a column that has more rows than its row group");
}

}  // namespace colonnade::corpus::parquet
