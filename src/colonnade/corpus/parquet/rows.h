// Interface of the module libcolonnade_parquet.so, the only code that uses Arrow: rows of a Parquet file as
// JSON lines. No exception and no Arrow type crosses this interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace colonnade::corpus::parquet {

/// Columns that become members of a row's object, by their top-level names in the schema.
struct Columns {
  std::vector<std::string> names;
  bool texts_only = true;  ///< strings and lists of strings; else also numbers, booleans, lists and structs
};

/// Error of a call.
struct Fault {
  enum Kind : std::uint8_t {
    kNone,
    kData,    ///< bad file: `what` is the message without the file name
    kSystem,  ///< I/O error: `what` is its reason
  };
  Kind kind = kNone;
  std::string what;
};

/// A row as text. Only the start of an overlong row is stored, which bounds memory.
struct Row {
  std::string text;         ///< {"column":value,...} without a line end; missing columns are omitted
  std::size_t dropped = 0;  ///< bytes missing after `text`
};

class Rows {
 public:
  Rows() = default;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  virtual ~Rows() = default;
  /// Reads the next row; at most `longest` bytes of it are kept.
  virtual Fault next(Row& row, std::size_t longest) = 0;
  /// Moves next() to a row, from 0, skipping row groups without reading them.
  virtual Fault go_to(std::int64_t row) = 0;
  [[nodiscard]] virtual std::int64_t at() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;
};

/// The module's only symbol, renamed whenever this header changes incompatibly. Returns null and sets `fault`
/// on error.
using Open = Rows* (*)(const char* path, const Columns* columns, Fault* fault);
constexpr const char* kOpenSymbol = "colonnade_parquet_open_1";
constexpr const char* kModule = "libcolonnade_parquet.so";

}  // namespace colonnade::corpus::parquet
