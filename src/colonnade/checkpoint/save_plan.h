// Assignment of tensors to writers: the pure part of a save, equal on all ranks.
#pragma once

#include <string>
#include <vector>

#include "colonnade/checkpoint/save.h"
#include "colonnade/checkpoint/slice.h"

namespace colonnade::checkpoint {

/// A slice owned by a rank: entry `index` of the rank's list.
struct PlannedSlice {
  int rank = 0;
  std::size_t index = 0;
  Box box;
};

struct PlannedTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  Sizes shape;
  std::vector<PlannedSlice> slices;  ///< by rank, then index; none is empty
  int writer = 0;                    ///< model tensors: the rank that writes the full tensor
};

struct SavePlan {
  std::vector<PlannedTensor> model;      ///< in file_order
  std::vector<PlannedTensor> optimizer;  ///< in file_order; each rank writes its own slices
  std::vector<std::string> model_files;  ///< file of each rank; "" where it writes none
};

/// The owned slices of a snapshot as text, for an all-gather.
std::string describe(const Snapshot& snapshot);

/// Checks that every element of every tensor has one owner and assigns each model tensor to a writer: the
/// rank that holds most of it, while that rank stays within its share of the bytes, else the rank with the
/// fewest bytes. Largest tensors first. Throws Error with tensor and elements.
SavePlan plan_save(const std::vector<std::string>& descriptions);

/// "optimizer-00003.safetensors".
std::string optimizer_file(int rank);

}  // namespace colonnade::checkpoint
