// Launch lines of Megatron-LM users (tests/vectors/launch_lines), with helpers to adapt them.
#pragma once

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "support/vectors.h"

namespace colonnade::test {

struct LaunchLine {
  std::string name, model;
  std::vector<std::string> args;

  /// Value of a single-value flag; "" if absent.
  [[nodiscard]] std::string value(const std::string& flag) const {
    const auto found = std::ranges::find(args, flag);
    return found == args.end() || found + 1 == args.end() ? "" : *(found + 1);
  }
  [[nodiscard]] int size(const std::string& flag, int fallback = 1) const {
    const std::string text = value(flag);
    return text.empty() ? fallback : std::stoi(text);
  }
  /// Removes a flag and its values.
  void remove(const std::string& flag) {
    auto at = std::ranges::find(args, flag);
    if (at == args.end()) return;
    auto end = at + 1;
    while (end != args.end() && !end->starts_with("--")) ++end;
    args.erase(at, end);
  }
  void replace(const std::string& flag, const std::string& value) {
    remove(flag);
    args.insert(args.end(), {flag, value});
  }
  /// `least` if the line's parallel sizes divide it, else the smallest world size that they divide.
  [[nodiscard]] int world(int least) const {
    const int tp = size("--tensor-model-parallel-size"), pp = size("--pipeline-model-parallel-size");
    const int dense = tp * pp * size("--context-parallel-size");
    const int etp = size("--expert-tensor-parallel-size", tp);
    const int model_ranks = std::lcm(dense, etp * pp * size("--expert-model-parallel-size"));
    return least % model_ranks == 0 ? least : model_ranks;
  }
};

/// All lines of a file, with `--vocab-size 50304` in place of their tokenizers, whose files are not
/// available.
inline std::vector<LaunchLine> launch_lines(const std::string& path = vectors() +
                                                                      "/launch_lines/lines.jsonl") {
  std::vector<LaunchLine> lines;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    const nlohmann::json json = nlohmann::json::parse(text);
    LaunchLine& line = lines.emplace_back(LaunchLine{json["name"], json["model"], json["args"]});
    for (const char* flag : {"--tokenizer-type", "--tokenizer-model", "--vocab-file", "--merge-file",
                             "--tiktoken-pattern", "--vocab-size"})
      line.remove(flag);
    line.args.insert(line.args.end(), {"--vocab-size", "50304"});
  }
  return lines;
}

}  // namespace colonnade::test
