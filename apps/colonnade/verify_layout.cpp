// `colonnade verify-layout A.yaml B.yaml`: checks that two layouts compute the same run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/job/prepare.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/train/compare_layouts.h"
#include "extras.h"
#include "flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

const std::vector<config::VerbFlag> kExtras = {
    {"--world-sizes", "N M", "ranks of A and of B; default: the smallest for their parallel sizes"},
    {"--steps", "N", "steps to compare (3)"},
    {"--json", "FILE", "write the comparison as JSON to this file"},
};

/// Options of the comparison.
struct Options {
  int steps = 3;
  std::string json;
  Arguments notes;  ///< settings of a file that are ignored
};

/// World size of file `index`; adds a fault if it cannot be read.
int world_size(config::Parsed& parsed, std::size_t index) {
  const auto found = parsed.extras.find("--world-sizes");
  if (found == parsed.extras.end()) return layout::smallest_world(parsed.run.parallel);
  if (found->second.size() != 2) {
    parsed.faults.push_back(
        fmt::format("--world-sizes must be two numbers, of A and of B; got {}; write e.g. "
                    "--world-sizes 1 8",
                    fmt::join(found->second, " ")));
    return layout::smallest_world(parsed.run.parallel);
  }
  config::Parsed one;
  one.extras["--world-sizes"] = {found->second[index]};
  const int size = extra_number(one, "--world-sizes", 1);
  parsed.faults.insert(parsed.faults.end(), one.faults.begin(), one.faults.end());
  if (size < 1)
    parsed.faults.push_back(
        fmt::format("--world-sizes must be above 0; got {}; write e.g. --world-sizes 1 8", size));
  return std::max(size, 1);
}

/// The run of a file, with the settings typed for both.
config::Run run_of(const std::string& file, const Arguments& more, std::size_t index, Options& options) {
  Arguments words{"--config", file};
  words.insert(words.end(), more.begin(), more.end());
  config::Parsed parsed = read_settings(words, kExtras);
  options.steps = extra_number(parsed, "--steps", 3);
  options.json = extra(parsed, "--json");
  if (options.steps < 1)
    parsed.faults.push_back(
        fmt::format("--steps must be at least 1; got {}; write --steps 3", options.steps));
  config::Run& run = parsed.run;
  run.parallel.world_size = world_size(parsed, index);
  if (!run.checkpoint.load.empty() || !run.checkpoint.pretrained_checkpoint.empty())
    parsed.faults.push_back(fmt::format(
        "{}: verify-layout starts from the initial weights of the seed; got --load or --pretrained-checkpoint; "
        "remove them",
        file));
  if (run.training.device == "cuda" && config::is_from_command_line(run, "device"))
    parsed.faults.emplace_back(
        "--device must be cpu: verify-layout runs ranks as threads on the CPU; got cuda; remove it");
  else if (run.training.device == "cuda" && run.given.contains("device"))
    options.notes.push_back(
        fmt::format("{}: device: cuda is ignored; ranks run as threads on the CPU", file));
  run.training.device = "cpu";
  run.checkpoint.save.clear();
  job::prepare(run, rules::Purpose::kTrain, parsed.faults);
  return run;
}

/// The runs of both files. Throws the errors of either by file; errors common to both are reported once.
std::pair<config::Run, config::Run> runs_of(const Arguments& files, const Arguments& more, Options& options) {
  std::array<config::Run, 2> runs;
  std::array<std::string, 2> errors_by_file;
  for (const std::size_t i : {0U, 1U}) try {
      runs[i] = run_of(files[i], more, i, options);
    } catch (const ConfigError& error) {
      errors_by_file[i] = error.what();
    }
  if (errors_by_file[0].empty() && errors_by_file[1].empty()) return {runs[0], runs[1]};
  if (errors_by_file[0] == errors_by_file[1]) throw ConfigError(errors_by_file[0]);
  Arguments errors;
  for (const std::size_t i : {0U, 1U})
    if (!errors_by_file[i].empty()) errors.push_back(fmt::format("{}: {}", files[i], errors_by_file[i]));
  throw ConfigError(fmt::format("{}", fmt::join(errors, "\n")));
}

std::string difference_text(const train::ValueDifference& one) {
  return fmt::format("step {}, {}: difference {:.2e}, tolerance {:.0e}", one.step, one.what, one.distance,
                     one.bound);
}

nlohmann::json to_json(const train::ValueDifference& one) {
  return {{"step", one.step}, {"what", one.what}, {"distance", one.distance}, {"bound", one.bound}};
}

nlohmann::json to_json(const train::Comparison& found, const Arguments& by_definition,
                       const Arguments& notes) {
  nlohmann::json json{{"agree", found.agree()},
                      {"steps", found.steps},
                      {"skipped", found.skipped},
                      {"farthest", nlohmann::json::array()},
                      {"notes", notes}};
  for (const std::string& line : by_definition) json["notes"].push_back(line);
  for (const train::ValueDifference& one : found.largest) json["farthest"].push_back(to_json(one));
  if (!found.first) return json;
  json["first"] = to_json(*found.first);
  json["verdict"] = !found.first_in_float64 ? "rounding" : by_definition.empty() ? "defect" : "by definition";
  if (found.first_in_float64) json["first_in_float64"] = to_json(*found.first_in_float64);
  return json;
}

/// `by_definition`: notes of train::expected_differences.
void print(const train::Comparison& found, const Arguments& by_definition, const Arguments& notes) {
  for (const std::string& line : notes) fmt::print("note: {}\n", line);
  for (const std::string& line : by_definition) fmt::print("note: {}\n", line);
  for (const train::ValueDifference& one : found.largest)
    fmt::print("largest difference: {}\n", difference_text(one));
  const auto steps = [](int number) { return fmt::format("{} {}", number, number == 1 ? "step" : "steps"); };
  if (found.skipped > 0)
    fmt::print("skipped by both, since gradients were not finite: {}; only their losses are compared\n",
               steps(found.skipped));
  if (found.agree()) {
    fmt::print("the layouts agree over {}\n", steps(found.steps));
    return;
  }
  if (!found.first) {
    fmt::print("only losses were compared: every step was skipped; lower the loss scale\n");
    return;
  }
  fmt::print("first value beyond its tolerance: {}\n", difference_text(*found.first));
  if (!found.first_in_float64)
    fmt::print("this looks like rounding: in float64 all values agree within 1e-9\n");
  else
    fmt::print("{}: the layouts differ in float64 too, first at {}\n",
               by_definition.empty()
                   ? "this is a defect"
                   : "this need not be a defect, since the layouts differ by definition (see note)",
               difference_text(*found.first_in_float64));
}

}  // namespace

Offers verify_layout_offers() { return {{"verify-layout", "", kExtras, config::Use::kTrain}}; }

int verify_layout(const Arguments& arguments) {
  if (print_verb_help(arguments, {"verify-layout A.yaml B.yaml [--world-sizes N M] [--steps N] [--json FILE]",
                                  kExtras, config::Use::kTrain}))
    return kExitDone;
  if (arguments.size() < 2 || arguments[0].starts_with("-") || arguments[1].starts_with("-"))
    throw ConfigError(
        "verify-layout requires two settings files; got fewer; write verify-layout A.yaml B.yaml");
  const Arguments more(arguments.begin() + 2, arguments.end());
  Options options;
  const auto [a, b] = runs_of({arguments[0], arguments[1]}, more, options);
  require_writable("--json", options.json);
  const train::Comparison found = train::compare_layouts({a}, {b}, options.steps);
  const Arguments by_definition = train::expected_differences(a, b);
  print(found, by_definition, options.notes);
  if (!options.json.empty())
    write_file_atomically(options.json, to_json(found, by_definition, options.notes).dump(2) + '\n');
  return found.agree() ? kExitDone : kExitFailed;
}

}  // namespace colonnade::app
