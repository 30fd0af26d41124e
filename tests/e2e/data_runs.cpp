// See data_runs.h.
#include "data_runs.h"

#include <gtest/gtest.h>

#include <sstream>

namespace colonnade::e2e {

using nlohmann::json;

Words small(const TempFolder& folder, const std::string& name, const Words& more) {
  return Words{"pretrain",
               "gpt",
               "--num-layers=1",
               "--hidden-size=32",
               "--num-attention-heads=2",
               "--seq-length=32",
               "--max-position-embeddings=32",
               "--micro-batch-size=2",
               "--global-batch-size=2",
               "--lr=1e-3",
               "--train-iters=2",
               "--eval-iters=0",
               "--data-cache-path",
               (folder / "cache").string(),
               "--save-interval=2",
               "--save",
               (folder / name).string()} +
         more;
}

std::string losses(const TempFolder& folder, const std::string& name) {
  std::string all;
  std::istringstream lines(read_text(folder / name / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    all += nlohmann::json::parse(line).at("lm_loss").dump() + "\n";
  return all;
}

json read_json(const std::filesystem::path& path) { return json::parse(read_text(path)); }

json inspected(const TempFolder& folder, const Words& words) {
  const std::filesystem::path file = folder / "i.json";
  const Result result = run(colonnade(Words{"data", "inspect"} + words + Words{"--json", file.string()}));
  EXPECT_EQ(result.code, 0) << result.text;
  return result.code == 0 ? read_json(file) : json();
}

json audited_samples(const TempFolder& folder, const std::string& name, int first, int count) {
  const Result result = run(colonnade({"data", "audit", (folder / name).string(), "--samples",
                                       std::to_string(first) + ".." + std::to_string(first + count - 1),
                                       "--json", (folder / "a.json").string()}));
  EXPECT_EQ(result.code, 0) << result.text;
  if (result.code != 0) return {};
  json shown = read_json(folder / "a.json").at("shown");
  EXPECT_EQ(shown.size(), static_cast<std::size_t>(count));
  for (json& sample : shown)
    for (const char* of_runs : {"session", "step", "skipped"}) sample.erase(of_runs);
  return shown;
}

json named_samples(const json& inspection) {
  if (inspection.is_null()) return {};
  json samples = inspection.at("samples");
  for (json& sample : samples)
    sample["data_set"] = inspection.at("data_sets").at(sample.at("data_set").get<std::size_t>()).at("prefix");
  return samples;
}

Words config_of(const TempFolder& folder, const std::string& name) {
  return {"--config", (folder / name / "config.yaml").string()};
}

}  // namespace colonnade::e2e
