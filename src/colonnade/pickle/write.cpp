// See write.h.
#include "colonnade/pickle/write.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>

#include "colonnade/pickle/opcodes.h"

namespace colonnade::pickle {
namespace {

/// Appends the little-endian bytes of an integer.
template <typename Integer>
void append_little_endian(std::string& bytes, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
}

}  // namespace

Writer::Writer() {
  byte(kProto);
  byte(2);
}

void Writer::none() { byte(kNone); }
void Writer::boolean(bool value) { byte(value ? kNewTrue : kNewFalse); }

void Writer::integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() &&
      value <= std::numeric_limits<std::int32_t>::max()) {
    byte(kBinInt);
    append_little_endian(bytes_, static_cast<std::int32_t>(value));
  } else {
    byte(kLong1);
    byte(sizeof(value));
    append_little_endian(bytes_, value);
  }
}

void Writer::real(double value) {
  byte(kBinFloat);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) byte(static_cast<unsigned char>(bits >> shift));
}

void Writer::text(std::string_view value) {
  byte(kBinUnicode);
  append_little_endian(bytes_, static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
}

void Writer::global(std::string_view module, std::string_view name) {
  const auto number = static_cast<std::uint32_t>(globals_.size());
  const auto [known, is_new] = globals_.try_emplace(fmt::format("{}.{}", module, name), number);
  if (is_new) {
    byte(kGlobal);
    bytes_.append(module).append("\n").append(name).append("\n");
  }
  byte(is_new ? kLongBinPut : kLongBinGet);
  append_little_endian(bytes_, known->second);
}

void Writer::begin_dict() {
  byte(kEmptyDict);
  byte(kMark);
}
void Writer::end_dict() { byte(kSetItems); }
void Writer::begin_list() {
  byte(kEmptyList);
  byte(kMark);
}
void Writer::end_list() { byte(kAppends); }
void Writer::begin_tuple() { byte(kMark); }
void Writer::end_tuple() { byte(kTuple); }

void Writer::integers(const std::vector<std::int64_t>& values) {
  begin_tuple();
  for (const std::int64_t value : values) integer(value);
  end_tuple();
}

void Writer::reduce() { byte(kReduce); }
void Writer::new_object() { byte(kNewObj); }
void Writer::build() { byte(kBuild); }
void Writer::persistent() { byte(kBinPersId); }

std::string Writer::finish() && {
  byte(kStop);
  return std::move(bytes_);
}

}  // namespace colonnade::pickle
