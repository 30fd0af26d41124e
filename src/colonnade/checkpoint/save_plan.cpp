// See save_plan.h.
#include "colonnade/checkpoint/save_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::checkpoint {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, PlannedTensor>;

json describe(const std::vector<Slice>& slices) {
  json list = json::array();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    if (slice.owner)
      list.push_back({slice.name, dtype_name(slice.data.scalar_type()), slice.global_shape, slice.offset,
                      slice.data.sizes().vec(), i});
  }
  return list;
}

void add(Tensors& tensors, int rank, const json& slice) {
  const auto name = slice[0].get<std::string>();
  const at::ScalarType dtype = *dtype_of(slice[1].get<std::string>());
  const auto shape = slice[2].get<Sizes>();
  const auto [found, fresh] = tensors.try_emplace(name, PlannedTensor{name, dtype, shape});
  PlannedTensor& tensor = found->second;
  COL_CHECK(tensor.dtype == dtype && tensor.shape == shape,
            "checkpoint tensor '{}': all slices must have one dtype and global shape; got {} of [{}] and, on "
            "rank {}, {} of [{}]",
            name, dtype_name(tensor.dtype), fmt::join(tensor.shape, ", "), rank, dtype_name(dtype),
            fmt::join(shape, ", "));
  tensor.slices.push_back(
      {rank, slice[5].get<std::size_t>(), {slice[3].get<Sizes>(), slice[4].get<Sizes>()}});
}

/// The tensors in file order, after checking that every element is owned exactly once.
std::vector<PlannedTensor> checked(Tensors tensors) {
  std::vector<PlannedTensor> list;
  for (auto& [name, tensor] : tensors) {
    std::vector<Box> boxes;
    for (const PlannedSlice& slice : tensor.slices) boxes.push_back(slice.box);
    if (const auto problem = coverage_problem(tensor.shape, boxes))
      throw Error(fmt::format(
          "checkpoint tensor '{}': every element must be owned by one rank; got {}; nothing was written",
          name, *problem));
    std::erase_if(tensor.slices, [](const PlannedSlice& slice) { return slice.box.numel() == 0; });
    list.push_back(std::move(tensor));
  }
  std::sort(list.begin(), list.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return file_order({a.name, a.dtype, {}}, {b.name, b.dtype, {}});
  });
  return list;
}

std::int64_t bytes_of_tensor(const PlannedTensor& tensor) {
  return Box{{}, tensor.shape}.numel() * static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
}

int largest_holder(const PlannedTensor& tensor) {
  std::map<int, std::int64_t> held;
  for (const PlannedSlice& slice : tensor.slices) held[slice.rank] += slice.box.numel();
  if (held.empty()) return 0;
  return std::max_element(held.begin(), held.end(), [](auto& a, auto& b) { return a.second < b.second; })
      ->first;
}

void choose_writers(std::vector<PlannedTensor>& tensors, int ranks) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bytes_of_tensor(tensors[a]) > bytes_of_tensor(tensors[b]);
  });
  std::int64_t total = 0;
  for (const PlannedTensor& tensor : tensors) total += bytes_of_tensor(tensor);
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
  const auto assign = [&](std::size_t i, std::size_t writer) {
    load[writer] += bytes_of_tensor(tensors[i]);
    tensors[i].writer = static_cast<int>(writer);
  };
  std::vector<std::size_t> remaining;
  for (const std::size_t i : order) {
    const auto holder = static_cast<std::size_t>(largest_holder(tensors[i]));
    if (load[holder] + bytes_of_tensor(tensors[i]) <= total / ranks) {
      assign(i, holder);
    } else {
      remaining.push_back(i);
    }
  }
  for (const std::size_t i : remaining)
    assign(i, static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin()));
}

std::vector<std::string> name_model_files(const std::vector<PlannedTensor>& tensors, int ranks) {
  std::vector<std::string> names(static_cast<std::size_t>(ranks));
  std::vector<bool> writes(names.size(), false);
  for (const PlannedTensor& tensor : tensors) writes[static_cast<std::size_t>(tensor.writer)] = true;
  const auto files = std::count(writes.begin(), writes.end(), true);
  int number = 0;
  for (std::size_t rank = 0; rank < names.size(); ++rank)
    if (writes[rank])
      names[rank] =
          files == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", ++number, files);
  return names;
}

}  // namespace

std::string describe(const Snapshot& snapshot) {
  return json{describe(snapshot.model), describe(snapshot.optimizer)}.dump();
}

SavePlan plan_save(const std::vector<std::string>& descriptions) {
  Tensors model;
  Tensors optimizer;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    const json lists = json::parse(descriptions[rank]);
    for (const json& slice : lists[0]) add(model, static_cast<int>(rank), slice);
    for (const json& slice : lists[1]) add(optimizer, static_cast<int>(rank), slice);
  }
  for (const auto& [name, tensor] : optimizer)
    COL_CHECK(!model.contains(name),
              "checkpoint tensor '{}': names must be unique; got a model and an optimizer tensor", name);
  const int ranks = static_cast<int>(descriptions.size());
  SavePlan plan{.model = checked(std::move(model)), .optimizer = checked(std::move(optimizer))};
  choose_writers(plan.model, ranks);
  plan.model_files = name_model_files(plan.model, ranks);
  return plan;
}

std::string optimizer_file(int rank) { return fmt::format("optimizer-{:05}.safetensors", rank); }

}  // namespace colonnade::checkpoint
