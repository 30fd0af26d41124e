// Who writes what: the pure part of a save, equal on all ranks.
#pragma once

#include <string>
#include <vector>

#include "colonnade/checkpoint/save.h"
#include "colonnade/checkpoint/slice.h"

namespace colonnade::checkpoint {

/// A slice of some rank: number `index` of its list.
struct Piece {
  int rank = 0;
  std::size_t index = 0;
  Box box;
};

struct PlannedTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  Sizes shape;
  std::vector<Piece> pieces;  ///< by rank, then index; none is empty
  int writer = 0;             ///< model tensors: the rank that writes it whole
};

struct SavePlan {
  std::vector<PlannedTensor> model;      ///< in file_order
  std::vector<PlannedTensor> optimizer;  ///< in file_order; each rank writes its own pieces
  std::vector<std::string> model_files;  ///< of each rank; "" where it writes none
};

/// The owned slices of a snapshot as text, to be gathered from all ranks.
std::string describe(const Snapshot& snapshot);

/// Checks that every element of every tensor has one owner and gives each model tensor a writer: the
/// rank that holds most of it while that rank has no more than its share of the bytes; what is left goes
/// to the rank with the fewest. Largest tensors first. Throws Error naming tensor and elements.
SavePlan plan_save(const std::vector<std::string>& descriptions);

/// "optimizer-00003.safetensors".
std::string optimizer_file(int rank);

}  // namespace colonnade::checkpoint
