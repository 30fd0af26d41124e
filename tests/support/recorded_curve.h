// The curves of vectors/trajectory/llama, recorded with Megatron Core 0.16.1.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace colonnade::test {

/// One step: loss before the update, gradient norm before clipping, the learning rate it used.
struct Recorded {
  double loss, grad_norm, lr;
};

/// The curve of one layout: "tp1", "tp2_sp", "dp2_distopt", ...
inline std::vector<Recorded> recorded_curve(const std::string& layout) {
  std::ifstream file(std::string(COLONNADE_VECTORS) + "/trajectory/llama/" + layout + ".csv");
  std::vector<Recorded> curve;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream cells(line);
    std::vector<double> row;
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(std::stod(cell));
    curve.push_back({row.at(1), row.at(3), row.at(4)});
  }
  return curve;
}

}  // namespace colonnade::test
