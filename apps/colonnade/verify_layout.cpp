// `colonnade verify-layout A.yaml B.yaml`: whether two layouts compute the same run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/job/prepare.h"
#include "colonnade/train/compare_layouts.h"
#include "extras.h"
#include "flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

const std::vector<config::Extra> kExtras = {
    {"--world-sizes", 2, "ranks of A and of B; default: the smallest that their sizes allow"},
    {"--steps", 1, "steps to compare (3)"},
    {"--json", 1, "write what was found to this file"},
};

/// What both files are compared with.
struct Asked {
  int steps = 3;
  std::string json;
  Arguments notes;  ///< what a file says and is not followed
};

/// The ranks of the file with number `index`; some number and a fault when it cannot be read.
int world_size(config::Parsed& parsed, std::size_t index) {
  const auto found = parsed.extras.find("--world-sizes");
  if (found == parsed.extras.end()) return smallest_world(parsed.run.parallel);
  if (found->second.size() != 2) {
    parsed.faults.push_back(
        fmt::format("--world-sizes must be two numbers, of A and of B; got {}; write e.g. "
                    "--world-sizes 1 8",
                    fmt::join(found->second, " ")));
    return smallest_world(parsed.run.parallel);
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

/// The run of a file, with the settings that were typed for both.
config::Run run_of(const std::string& file, const Arguments& more, std::size_t index, Asked& asked) {
  Arguments words{"--config", file};
  words.insert(words.end(), more.begin(), more.end());
  config::Parsed parsed = read_settings(words, kExtras);
  asked.steps = extra_number(parsed, "--steps", 3);
  asked.json = extra(parsed, "--json");
  if (asked.steps < 1)
    parsed.faults.push_back(fmt::format("--steps must be at least 1; got {}; write --steps 3", asked.steps));
  config::Run& run = parsed.run;
  run.parallel.world_size = world_size(parsed, index);
  if (!run.checkpoint.load.empty() || !run.checkpoint.pretrained_checkpoint.empty())
    parsed.faults.push_back(fmt::format(
        "{}: verify-layout compares from the weights of the seed; got --load or --pretrained-checkpoint; "
        "leave them out",
        file));
  if (run.training.device == "cuda" && config::typed(run, "device"))
    parsed.faults.emplace_back(
        "--device must be cpu, for verify-layout runs ranks as threads on the CPU; got cuda; leave it out");
  else if (run.training.device == "cuda" && run.given.contains("device"))
    asked.notes.push_back(
        fmt::format("{}: device: cuda is not followed, ranks run as threads on the CPU", file));
  run.training.device = "cpu";
  run.checkpoint.save.clear();
  job::prepare(run, rules::Purpose::kTrain, parsed.faults);
  return run;
}

/// The runs of both files. Throws what is wrong with either, by file, and with both alike once.
std::pair<config::Run, config::Run> runs_of(const Arguments& files, const Arguments& more, Asked& asked) {
  std::array<config::Run, 2> runs;
  std::array<std::string, 2> wrong;
  for (const std::size_t i : {0U, 1U}) try {
      runs[i] = run_of(files[i], more, i, asked);
    } catch (const ConfigError& error) {
      wrong[i] = error.what();
    }
  if (wrong[0].empty() && wrong[1].empty()) return {runs[0], runs[1]};
  if (wrong[0] == wrong[1]) throw ConfigError(wrong[0]);
  Arguments told;
  for (const std::size_t i : {0U, 1U})
    if (!wrong[i].empty()) told.push_back(fmt::format("{}: {}", files[i], wrong[i]));
  throw ConfigError(fmt::format("{}", fmt::join(told, "\n")));
}

std::string in_words(const train::Apart& one) {
  return fmt::format("step {}, {}: apart by {:.2e}, bound {:.0e}", one.step, one.what, one.distance,
                     one.bound);
}

nlohmann::json to_json(const train::Apart& one) {
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
  for (const train::Apart& one : found.farthest) json["farthest"].push_back(to_json(one));
  if (!found.first) return json;
  json["first"] = to_json(*found.first);
  json["verdict"] = !found.first_in_float64 ? "rounding" : by_definition.empty() ? "defect" : "by definition";
  if (found.first_in_float64) json["first_in_float64"] = to_json(*found.first_in_float64);
  return json;
}

/// `by_definition`: of train::apart_by_definition.
void print(const train::Comparison& found, const Arguments& by_definition, const Arguments& notes) {
  for (const std::string& line : notes) fmt::print("note: {}\n", line);
  for (const std::string& line : by_definition) fmt::print("note: {}\n", line);
  for (const train::Apart& one : found.farthest) fmt::print("farthest: {}\n", in_words(one));
  const auto steps = [](int number) { return fmt::format("{} {}", number, number == 1 ? "step" : "steps"); };
  if (found.skipped > 0)
    fmt::print("skipped by both, since gradients were not finite: {}, of which losses alone are compared\n",
               steps(found.skipped));
  if (found.agree()) {
    fmt::print("the layouts agree over {}\n", steps(found.steps));
    return;
  }
  if (!found.first) {
    fmt::print("nothing was compared but losses: no step counted; lower the loss scale\n");
    return;
  }
  fmt::print("the first value beyond its bound: {}\n", in_words(*found.first));
  if (!found.first_in_float64)
    fmt::print("this looks like rounding: in float64 everything agrees within 1e-9\n");
  else
    fmt::print(
        "{}: in float64 they part too, first at {}\n",
        by_definition.empty()
            ? "this is a defect"
            : "this need not be a defect, for the layouts compute different things by definition (note above)",
        in_words(*found.first_in_float64));
}

}  // namespace

Offers verify_layout_offers() { return {{"verify-layout", "", kExtras, config::Use::kTrain}}; }

int verify_layout(const Arguments& arguments) {
  if (print_verb_help(arguments, {"verify-layout A.yaml B.yaml [--world-sizes N M] [--steps N] [--json FILE]",
                                  kExtras, config::Use::kTrain}))
    return kExitDone;
  if (arguments.size() < 2 || arguments[0].starts_with("-") || arguments[1].starts_with("-"))
    throw ConfigError(
        "verify-layout must be followed by two files of settings; got less; write verify-layout A.yaml B.yaml");
  const Arguments more(arguments.begin() + 2, arguments.end());
  Asked asked;
  const auto [a, b] = runs_of({arguments[0], arguments[1]}, more, asked);
  require_writable("--json", asked.json);
  const train::Comparison found = train::compare_layouts({a}, {b}, asked.steps);
  const Arguments by_definition = train::apart_by_definition(a, b);
  print(found, by_definition, asked.notes);
  if (!asked.json.empty())
    write_file_atomically(asked.json, to_json(found, by_definition, asked.notes).dump(2) + '\n');
  return found.agree() ? kExitDone : kExitFailed;
}

}  // namespace colonnade::app
