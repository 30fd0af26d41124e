// Shared by the checkpoint tests: a temporary folder, a toy model and its layouts.
#pragma once

#include <ATen/ATen.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "colonnade/base/files.h"
#include "colonnade/base/philox.h"
#include "colonnade/checkpoint/load.h"
#include "colonnade/checkpoint/save.h"
#include "colonnade/comm/thread_ranks.h"
#include "support/device.h"

namespace colonnade::checkpoint::test {

namespace fs = std::filesystem;

class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "colonnade_checkpoint_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  operator const fs::path&() const { return path_; }  // NOLINT(google-explicit-constructor)

 private:
  fs::path path_;
};

/// A tensor of the toy model: odd sizes, several dtypes, a scalar.
struct Toy {
  std::string name;
  Sizes shape;
  at::ScalarType dtype = at::kFloat;
};
inline const std::vector<Toy>& toys() {
  static const std::vector<Toy> kToys{{"model.embed_tokens.weight", {10, 6}},
                                      {"model.layers.0.proj.weight", {8, 12}, at::kBFloat16},
                                      {"model.layers.0.kernel", {4, 6, 3}},
                                      {"model.norm.weight", {14}},
                                      {"model.scale", {}}};
  return kToys;
}

/// The values of a full tensor at `step`: a function of the name, equal on every rank.
inline at::Tensor values(const Toy& toy, std::int64_t step, at::ScalarType dtype) {
  const double first = static_cast<double>(stable_hash(toy.name) % 1000) + static_cast<double>(step);
  const std::int64_t numel = Box{{}, toy.shape}.numel();
  return ((at::arange(numel, at::kDouble) + first) / 8).to(dtype).reshape(toy.shape);
}
inline at::Tensor values(const Toy& toy, std::int64_t step) { return values(toy, step, toy.dtype); }
inline std::string moment_of(const Toy& toy) { return "optimizer.exp_avg." + toy.name; }

enum class Sharding { kNone, kRows, kColumns, kGrid, kReplicas };
struct Layout {
  std::string name;
  int ranks = 1;
  Sharding sharding = Sharding::kNone;
};
inline std::vector<Layout> layouts() {
  return {{"one", 1, Sharding::kNone},
          {"rows", 2, Sharding::kRows},
          {"columns", 2, Sharding::kColumns},
          {"grid", 4, Sharding::kGrid},
          {"replicas", 4, Sharding::kReplicas}};
}

/// The box of `shape` on `rank`, and whether the rank owns it. Tensors too small to shard are replicated.
inline std::pair<Box, bool> box_of(const Layout& layout, const Sizes& shape, int rank) {
  Box box{Sizes(shape.size(), 0), shape};
  const auto halve = [&](std::size_t dim, int part) {
    if (dim >= shape.size()) return part == 0;
    box.offset[dim] = part * (shape[dim] / 2);
    box.shape[dim] = part == 0 ? shape[dim] / 2 : shape[dim] - shape[dim] / 2;
    return true;
  };
  switch (layout.sharding) {
    case Sharding::kNone:
      return {box, true};
    case Sharding::kRows:
      return {box, halve(0, rank)};
    case Sharding::kColumns:
      return {box, halve(1, rank)};
    case Sharding::kGrid: {
      const bool owns_row = halve(0, rank / 2);
      return {box, halve(1, rank % 2) && owns_row};
    }
    case Sharding::kReplicas:
      return {box, halve(0, rank % 2) && rank < 2};
  }
  return {box, true};
}

/// This rank's slices on the test device; with `fill` they hold the values of `step`, else zeros.
/// Matrices are strided views. Moments are flat ranges that end within rows.
inline Snapshot snapshot_of(const Layout& layout, int rank, std::int64_t step, bool fill) {
  Snapshot snapshot;
  for (const Toy& toy : toys()) {
    const auto [box, owner] = box_of(layout, toy.shape, rank);
    const auto slice_of = [&](const std::string& name, at::ScalarType dtype, const Box& part, bool owned) {
      Slice full{name, toy.shape, Sizes(toy.shape.size(), 0),
                 values(toy, step, dtype).to(colonnade::test::device())};
      if (!fill) full.data.zero_();
      return Slice{name, toy.shape, part.offset, subview(full, part), owned};
    };
    snapshot.model.push_back(slice_of(toy.name, toy.dtype, box, owner));
    const std::int64_t numel = Box{{}, toy.shape}.numel();
    for (const Box& part :
         boxes_of_range(toy.shape, numel * rank / layout.ranks, numel * (rank + 1) / layout.ranks))
      snapshot.optimizer.push_back(slice_of(moment_of(toy), at::kFloat, part, true));
  }
  snapshot.state = {{"step", step}, {"seed", 1234}, {"lr", 0.1}};
  snapshot.hf_config = {{"model_type", "toy"}, {"hidden_size", 6}};
  return snapshot;
}

/// Saves the toy model of `step` and returns rank 0's result.
inline SaveResult save_toy(const fs::path& run, std::int64_t step, const Layout& layout = {},
                           const SaveOptions& options = {}) {
  std::vector<SaveResult> results(static_cast<std::size_t>(layout.ranks));
  comm::run_ranks(layout.ranks, [&](comm::Communicators& ranks) {
    results[static_cast<std::size_t>(ranks.rank())] =
        save(run, step, snapshot_of(layout, ranks.rank(), step, true), ranks.world(), options);
  });
  return results[0];
}

/// Whether `source` gives the values of `step` to every rank of `layout`.
inline bool has_values(const CheckpointReader& source, const Layout& layout, std::int64_t step) {
  bool equal = true;
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const Snapshot got = snapshot_of(layout, rank, step, false);
    const Snapshot want = snapshot_of(layout, rank, step, true);
    for (std::size_t i = 0; i < got.model.size(); ++i) {
      source.read_into(got.model[i]);
      equal = equal && at::equal(got.model[i].data, want.model[i].data);
    }
    for (std::size_t i = 0; i < got.optimizer.size(); ++i) {
      source.read_into(got.optimizer[i]);
      equal = equal && at::equal(got.optimizer[i].data, want.optimizer[i].data);
    }
  }
  return equal;
}

inline void write_raw(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// Message of the exception that `body` throws; "" when it throws none.
template <typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

}  // namespace colonnade::checkpoint::test
