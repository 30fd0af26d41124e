// Training curves of vectors/trajectory, recorded with Megatron Core 0.16.1.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/vectors.h"

namespace colonnade::test {

/// One step: loss before the update, gradient norm before clipping, learning rate used.
struct Recorded {
  double loss, load_balancing_loss, grad_norm, lr;
};

/// Curve of one layout ("tp1", "tp2_sp", "dp2_distopt", ...) of `model` (llama, moe).
inline std::vector<Recorded> recorded_curve(const std::string& layout, const std::string& model = "llama") {
  std::ifstream file(test::vectors() + "/trajectory/" + model + "/" + layout + ".csv");
  std::vector<Recorded> curve;
  std::string line;
  std::getline(file, line);  // step,lm_loss,load_balancing_loss,grad_norm,lr_used,lr_after
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    std::vector<double> row;
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell.empty() ? 0 : std::stod(cell));
    curve.push_back({row.at(1), row.at(2), row.at(3), row.at(4)});
  }
  return curve;
}

}  // namespace colonnade::test
