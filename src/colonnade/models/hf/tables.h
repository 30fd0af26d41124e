// Name tables of the families. Private to models/hf.
#pragma once

#include <string>
#include <vector>

#include "colonnade/models/hf/names.h"

namespace colonnade::models::hf {

/// One row of a family's table. In patterns the first {} is the layer number, the second StoredTensor::index;
/// literal names take precedence. `theirs` has one name per fused piece of our parameter, or one for all.
struct Row {
  std::string ours;
  std::vector<std::string> theirs;
  bool transposed = false;
  bool of_layer_before =
      false;  ///< theirs is numbered by the previous layer, for the final norm by the last one
};
using Table = std::vector<Row>;

const Table& table_of(Family family);

}  // namespace colonnade::models::hf
