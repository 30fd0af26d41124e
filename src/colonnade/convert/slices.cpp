// See slices.h.
#include "colonnade/convert/slices.h"

#include <algorithm>

namespace colonnade::convert {
namespace {

using checkpoint::Box;
using checkpoint::Slice;

int cut_dim(const tensor::Parameter& p) { return std::max(0, p.spec.split_dim); }

/// One run of the local part in our global coordinates.
struct LocalRun {
  at::Tensor data;
  checkpoint::Sizes offset;
  bool owner;
};

std::vector<LocalRun> runs_of(const tensor::Parameter& p, const at::Tensor& value) {
  std::vector<LocalRun> runs;
  const int dim = cut_dim(p);
  for (const plan::Run& run : p.shard.runs) {
    LocalRun part{value, checkpoint::Sizes(p.spec.shape.size(), 0), run.owner && !p.is_copy};
    if (!p.spec.shape.empty()) {
      part.data = part.data.narrow(dim, run.local, run.length);
      part.offset[static_cast<std::size_t>(dim)] = run.global;
    }
    runs.push_back(std::move(part));
  }
  return runs;
}

/// The rows of `run` that lie in `tensor`; nothing when there are none.
std::optional<Slice> slice_of(const LocalRun& run, const models::gpt::HfTensor& tensor,
                              const checkpoint::Sizes& global) {
  Slice slice{.name = tensor.name,
              .global_shape = global,
              .offset = run.offset,
              .data = run.data,
              .owner = run.owner};
  if (!global.empty()) {
    const std::int64_t from = std::max(run.offset[0], tensor.first_row);
    const std::int64_t to = std::min(run.offset[0] + run.data.size(0), tensor.first_row + tensor.rows);
    if (from >= to) return std::nullopt;
    slice.data = run.data.narrow(0, from - run.offset[0], to - from);
    slice.offset[0] = from - tensor.first_row;
    slice.global_shape[0] = tensor.rows;
  }
  if (tensor.transposed) {
    slice.data = slice.data.t();
    std::swap(slice.offset[0], slice.offset[1]);
    std::swap(slice.global_shape[0], slice.global_shape[1]);
  }
  return slice;
}

}  // namespace

std::vector<Slice> model_slices(const tensor::Parameter& parameter,
                                std::optional<models::gpt::HfFamily> family, bool replica_owner) {
  return model_slices(parameter, parameter.value.detach(), family, replica_owner);
}

std::vector<Slice> model_slices(const tensor::Parameter& parameter, const at::Tensor& value,
                                std::optional<models::gpt::HfFamily> family, bool replica_owner) {
  std::vector<Slice> slices;
  const auto tensors = models::gpt::hf_tensors(parameter.spec, family);
  for (const LocalRun& run : runs_of(parameter, value))
    for (const auto& tensor : tensors)
      if (auto slice = slice_of(run, tensor, parameter.spec.shape)) {
        slice->owner = slice->owner && replica_owner;
        slices.push_back(std::move(*slice));
      }
  return slices;
}

std::vector<Slice> state_slices(const std::string& name, const tensor::Parameter& p, std::int64_t begin,
                                const at::Tensor& state, bool replica_owner) {
  std::vector<Slice> slices;
  const auto dim = static_cast<std::size_t>(cut_dim(p));
  std::int64_t done = 0;
  for (const Box& local : checkpoint::boxes_of_range(p.shard.shape, begin, begin + state.numel())) {
    const at::Tensor box = state.narrow(0, done, local.numel()).view(local.shape);
    done += local.numel();
    for (const plan::Run& run : p.shard.runs) {
      Slice slice{.name = name,
                  .global_shape = p.spec.shape,
                  .offset = local.offset,
                  .data = box,
                  .owner = run.owner && replica_owner && !p.is_copy};
      if (!p.spec.shape.empty()) {
        const std::int64_t from = std::max(local.offset[dim], run.local);
        const std::int64_t to = std::min(local.offset[dim] + local.shape[dim], run.local + run.length);
        if (from >= to) continue;
        slice.data = box.narrow(static_cast<std::int64_t>(dim), from - local.offset[dim], to - from);
        slice.offset[dim] = from - run.local + run.global;
      }
      slices.push_back(std::move(slice));
    }
  }
  return slices;
}

}  // namespace colonnade::convert
