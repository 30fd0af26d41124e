// The tables behind names.h. Private to models/hf.
#pragma once

#include <string>
#include <vector>

#include "colonnade/models/hf/names.h"

namespace colonnade::models::hf {

/// One row of a family's table. Patterns hold {} where the number of the layer stands, and a second one for
/// the expert's; a name as it is goes before a pattern. `theirs` has one name per piece of our parameter, or
/// one for all.
struct Row {
  std::string ours;
  std::vector<std::string> theirs;
  bool transposed = false;
  bool of_layer_before = false;  ///< theirs has the number of the layer before, or of the last one
};
using Table = std::vector<Row>;

const Table& table_of(Family family);

}  // namespace colonnade::models::hf
