// See source.h.
#include "colonnade/convert/megatron/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"

namespace colonnade::convert::megatron {

using checkpoint::Box;
using checkpoint::ComposedTensor;
using checkpoint::Part;
using checkpoint::Sizes;
using models::megatron::Split;

namespace {

/// The dimension that a share divides.
std::size_t divided_dim(const Sizes& shape, const Share& share) {
  return share.split == Split::kColumns ? shape.size() - 1 : static_cast<std::size_t>(share.row_dim);
}

/// Adds the rows [first, first + count) of dimension `dim` of a part, moved by `by`.
void add_rows(ComposedTensor& whole, const Part& part, std::size_t dim, std::int64_t first,
              std::int64_t count, std::int64_t by) {
  Box rows{part.box.offset, part.box.shape};
  rows.offset[dim] = first;
  rows.shape[dim] = count;
  const auto common = checkpoint::overlap(part.box, rows);
  if (!common) return;
  const auto d = static_cast<std::int64_t>(dim);
  Part moved{*common, part.data.narrow(d, common->offset[dim] - part.box.offset[dim], common->shape[dim])};
  moved.box.offset[dim] += by;
  whole.parts.push_back(std::move(moved));
}

}  // namespace

Sizes local_shape(const std::string& name, const Sizes& global, const Share& share) {
  Sizes local = global;
  if (share.split == Split::kNone || share.size == 1) return local;
  const std::size_t dim = divided_dim(global, share);
  const std::int64_t pieces = share.split == Split::kGatedRows ? 2 * share.size : share.size;
  if (global[dim] % pieces != 0)
    throw DataError(
        fmt::format("'{}' must be divisible among {} tensor-parallel ranks; got [{}]; load it with "
                    "--no-load-optim",
                    name, share.size, fmt::join(global, ", ")));
  local[dim] /= share.size;
  return local;
}

Sizes global_shape(const Sizes& local, const Share& share) {
  Sizes global = local;
  if (share.split != Split::kNone) global[divided_dim(local, share)] *= share.size;
  return global;
}

void add_share(ComposedTensor& whole, const Sizes& local, const Part& part, const Share& share) {
  if (share.split == Split::kNone || share.size == 1) {
    if (share.rank == 0) whole.parts.push_back(part);
    return;
  }
  const std::size_t dim = divided_dim(local, share);
  const std::int64_t size = local[dim];
  if (share.split != Split::kGatedRows) return add_rows(whole, part, dim, 0, size, share.rank * size);
  const std::int64_t half = size / 2;
  add_rows(whole, part, dim, 0, half, share.rank * half);
  add_rows(whole, part, dim, half, half, share.size * half + share.rank * half - half);
}

std::int64_t integer_arg(const nlohmann::json& args, const char* name, std::int64_t fallback) {
  const auto found = args.find(name);
  return found != args.end() && found->is_number_integer() ? found->get<std::int64_t>() : fallback;
}

double number_arg(const nlohmann::json& args, const char* name, double fallback) {
  const auto found = args.find(name);
  return found != args.end() && found->is_number() ? found->get<double>() : fallback;
}

std::string text_arg(const nlohmann::json& args, const char* name, const char* fallback) {
  const auto found = args.find(name);
  return found != args.end() && found->is_string() ? found->get<std::string>() : fallback;
}

bool flag_arg(const nlohmann::json& args, const char* name, bool fallback) {
  const auto found = args.find(name);
  return found != args.end() && found->is_boolean() ? found->get<bool>() : fallback;
}

}  // namespace colonnade::convert::megatron
