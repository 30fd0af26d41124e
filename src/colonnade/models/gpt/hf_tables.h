// The tables behind hf_names.h. Private to models/.
#pragma once

#include <string>
#include <vector>

#include "colonnade/models/gpt/hf_names.h"

namespace colonnade::models::gpt {

/// One row of a family's table. Patterns hold {} where the number of the layer stands, and a second one for
/// the expert's. `theirs` has one name per piece of our parameter, or one for all.
struct HfRow {
  std::string ours;
  std::vector<std::string> theirs;
  bool transposed = false;
};
using HfTable = std::vector<HfRow>;

const HfTable& hf_table(HfFamily family);

}  // namespace colonnade::models::gpt
