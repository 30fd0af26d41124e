// Writes Python pickles of protocol 2, which every torch.load reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colonnade::pickle {

/// Appends a pickle to a text, value by value:
///
///     Writer w;
///     w.begin_dict();
///     w.text("iteration"), w.integer(5);
///     w.end_dict();
///     const std::string bytes = std::move(w).finish();
///
/// Values after begin_dict() are keys and values in turns.
class Writer {
 public:
  Writer();

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void real(double value);
  void text(std::string_view value);
  /// A class or function; its name is written once.
  void global(std::string_view module, std::string_view name);

  void begin_dict();
  void end_dict();
  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  /// A tuple of integers.
  void integers(const std::vector<std::int64_t>& values);

  /// Calls the class or function before the tuple of arguments: global(), a tuple, reduce().
  void reduce();
  /// Makes an object without calling its constructor: global(), an empty tuple, new_object(), a state,
  /// build().
  void new_object();
  void build();
  /// The value before it is the id of an object outside the pickle.
  void persistent();

  /// The whole pickle.
  std::string finish() &&;

 private:
  void byte(unsigned char value) { bytes_.push_back(static_cast<char>(value)); }
  std::string bytes_;
  std::map<std::string, std::uint32_t> globals_;  ///< numbers in the memo
};

}  // namespace colonnade::pickle
