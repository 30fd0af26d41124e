// What the module libcolonnade_parquet.so, the one place that sees Arrow, gives the rest: the rows of a
// Parquet file as lines of JSON. No exception and no type of Arrow's crosses this border.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace colonnade::corpus::parquet {

/// Which columns become members of a row's object, by their names at the top of the schema.
struct Columns {
  std::vector<std::string> names;
  bool texts_only = true;  ///< strings and lists of strings; else also numbers, truth values, lists, structs
};

/// Why a call did nothing.
struct Fault {
  enum Kind : std::uint8_t {
    kNone,
    kData,    ///< the file: `what` is the whole message without the file's name
    kSystem,  ///< the system could not read it: `what` is its reason
  };
  Kind kind = kNone;
  std::string what;
};

/// A row as text. Of one that is longer than asked for only the beginning is there, so memory is bounded.
struct Row {
  std::string text;  ///< {"column":value,...} without a line end; columns that are not there are left out
  std::size_t dropped = 0;  ///< bytes that are missing behind `text`
};

class Rows {
 public:
  Rows() = default;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  virtual ~Rows() = default;
  /// The next row; at most `longest` bytes of it are kept.
  virtual Fault next(Row& row, std::size_t longest) = 0;
  /// Where next() reads, from 0. Passes over row groups without reading them.
  virtual Fault go_to(std::int64_t row) = 0;
  [[nodiscard]] virtual std::int64_t at() const = 0;
  [[nodiscard]] virtual std::int64_t size() const = 0;
};

/// The module's one symbol; its name changes with this header. Null when `fault` says why.
using Open = Rows* (*)(const char* path, const Columns* columns, Fault* fault);
constexpr const char* kOpenSymbol = "colonnade_parquet_open_1";
constexpr const char* kModule = "libcolonnade_parquet.so";

}  // namespace colonnade::corpus::parquet
