// See numbered.h.
#include "colonnade/convert/megatron/numbered.h"

#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

namespace colonnade::convert::megatron {

using checkpoint::ComposedTensor;
using checkpoint::Part;

namespace {

/// The place in a name after "encoder.layers." or "decoder.layers.", where no number follows.
std::optional<std::size_t> stacked_at(const std::string& key) {
  for (const std::string_view stack : {"decoder.layers.", "encoder.layers."}) {
    const auto found = key.find(stack);
    if (found == std::string::npos || (found > 0 && key[found - 1] != '.')) continue;
    const std::size_t after = found + stack.size();
    if (after < key.size() && std::isdigit(static_cast<unsigned char>(key[after])) == 0) return after;
  }
  return std::nullopt;
}

/// A name with the number of an expert, and the name without it.
struct ExpertName {
  std::string name;
  std::int64_t expert = 0;
};
std::optional<ExpertName> expert_of(const std::string& key) {
  constexpr std::string_view kExperts = ".experts.experts.";
  const auto found = key.find(kExperts);
  if (found == std::string::npos) return std::nullopt;
  const char* const first = key.data() + found + kExperts.size();
  const char* const end = key.data() + key.size();
  std::int64_t number = 0;
  const auto [dot, fault] = std::from_chars(first, end, number);
  if (fault != std::errc() || dot == end || *dot != '.') return std::nullopt;
  return ExpertName{key.substr(0, found + kExperts.size()) + std::string(dot + 1, end), number};
}

/// A part of a tensor that has one more dimension in front.
Part in_front(Part part, std::int64_t index) {
  part.box.offset.insert(part.box.offset.begin(), index);
  part.box.shape.insert(part.box.shape.begin(), 1);
  part.data = part.data.unsqueeze(0);
  return part;
}

void add_whole(Tensors& tensors, const std::string& key, const ComposedTensor& stored) {
  ComposedTensor& whole = tensors[key];
  whole.dtype = stored.dtype;
  whole.shape = stored.shape;
  whole.parts.insert(whole.parts.end(), stored.parts.begin(), stored.parts.end());
}

void add_stacked(Tensors& tensors, const std::string& key, std::size_t at, const ComposedTensor& stored,
                 std::int64_t experts) {
  for (std::int64_t layer = 0; layer < stored.shape.at(0); ++layer) {
    ComposedTensor one{.dtype = stored.dtype,
                       .shape = {stored.shape.begin() + 1, stored.shape.end()},
                       .parts = {},
                       .compute = {}};
    for (const Part& part : stored.parts) {
      const std::int64_t local = layer - part.box.offset[0];
      if (local < 0 || local >= part.box.shape[0]) continue;
      one.parts.push_back({{{part.box.offset.begin() + 1, part.box.offset.end()},
                            {part.box.shape.begin() + 1, part.box.shape.end()}},
                           part.data.select(0, local)});
    }
    add_numbered(tensors, key.substr(0, at) + std::to_string(layer) + "." + key.substr(at), one, experts);
  }
}

}  // namespace

void add_numbered(Tensors& tensors, const std::string& key, const ComposedTensor& stored,
                  std::int64_t experts) {
  const auto stacked = stacked_at(key);
  if (stacked && !stored.shape.empty()) return add_stacked(tensors, key, *stacked, stored, experts);
  const bool is_gate = key.ends_with(".weight_w"), is_up = key.ends_with(".weight_v");
  if (is_gate || is_up) {
    ComposedTensor half = stored;
    half.shape.at(0) *= 2;
    if (is_up)
      for (Part& part : half.parts) part.box.offset.at(0) += stored.shape[0];
    return add_numbered(tensors, key.substr(0, key.size() - 2), half, experts);
  }
  if (const auto expert = expert_of(key)) {
    ComposedTensor one{.dtype = stored.dtype, .shape = stored.shape, .parts = {}, .compute = {}};
    one.shape.insert(one.shape.begin(), experts);
    for (const Part& part : stored.parts) one.parts.push_back(in_front(part, expert->expert));
    return add_whole(tensors, expert->name, one);
  }
  add_whole(tensors, key, stored);
}

}  // namespace colonnade::convert::megatron
