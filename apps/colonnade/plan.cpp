// `colonnade plan`: what a run will need, for any world size, without starting it.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/derive.h"
#include "colonnade/plan/communication.h"
#include "colonnade/plan/describe.h"
#include "colonnade/plan/flops.h"
#include "colonnade/plan/idle.h"
#include "colonnade/plan/rules.h"
#include "extras.h"
#include "flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

const std::vector<config::Extra> kExtras = {
    {"--world-size", 1, "number of ranks; default: the smallest that the sizes allow"},
    {"--svg", 1, "write the picture of the pipeline to this file"},
    {"--json", 1, "write the plan to this file"},
};

void set_world_size(config::Parsed& parsed) {
  config::Parallel& p = parsed.run.parallel;
  const std::string text = extra(parsed, "--world-size");
  if (text.empty()) {
    p.world_size = p.tensor_model_parallel_size * p.pipeline_model_parallel_size * p.context_parallel_size;
    return;
  }
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc{} && end == text.data() + text.size() && size > 0) {
    p.world_size = size;
  } else {
    parsed.faults.push_back(
        fmt::format("--world-size: must be a number of ranks above 0; got '{}'; give e.g. 8", text));
  }
}

/// Gives sizes that are missing, for a plan of no tokens says nothing; one line for each.
std::string assume_sizes(config::Parsed& parsed) {
  config::Run& run = parsed.run;
  const auto absent = [&run](const char* key) {
    return !run.given.contains(key) && !run.at_fault.contains(key);
  };
  std::string said;
  if (absent("micro_batch_size") && run.training.micro_batch_size == 0) {
    run.training.micro_batch_size = 1;
    said += "batch: --micro-batch-size is not given; planned is a micro-batch of 1 sequence\n";
  }
  if (!absent("seq_length") || run.training.seq_length != 0) return said;
  if (run.model.max_position_embeddings > 0) {
    run.training.seq_length = run.model.max_position_embeddings;
    said += fmt::format(
        "batch: --seq-length is not given; planned are the {} tokens of --max-position-embeddings\n",
        run.training.seq_length);
  } else if (!run.at_fault.contains("max_position_embeddings")) {
    parsed.faults.emplace_back(
        "--seq-length: must be given, or --max-position-embeddings; got neither; write --seq-length N");
  }
  return said;
}

/// What training needs and was not given, in words.
std::string missing_of(config::Run run) {
  config::derive(run);
  return plan::missing_for_training(run);
}

/// What the plan assumes, what does nothing, and what a run would need besides.
void print_remarks(const config::Parsed& parsed, const std::string& missing) {
  const config::Run& run = parsed.run;
  if (!parsed.extras.contains("--world-size"))
    fmt::print("world: --world-size is not given; planned is the smallest world, {} {} (data axis 1)\n",
               run.parallel.world_size, run.parallel.world_size == 1 ? "rank" : "ranks");
  for (const char* key : {"load", "pretrained_checkpoint"}) {
    if (!config::text_of(run, config::setting(key)).empty())
      fmt::print("{}: is not read by `plan`, which takes sizes from the settings alone\n",
                 config::setting(key).flag);
  }
  for (const std::string& note : run.notes) fmt::print("{}\n", note);
  for (const std::string& note : plan::idle_habits(run)) fmt::print("{}\n", note);
  if (!missing.empty()) fmt::print("training: {} must be given too\n", missing);
}

nlohmann::json to_json(const config::Run& run) {
  const plan::Schedule schedule = plan::schedule_of(run);
  const auto memory = plan::plan_memory(run);
  const auto traffic = plan::plan_traffic(run);
  nlohmann::json ranks = nlohmann::json::array();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    nlohmann::json blocks = nlohmann::json::array();
    for (const auto& stage : memory[i].stages) blocks.push_back(plan::blocks_text(stage));
    ranks.push_back({{"pipeline_rank", i},
                     {"blocks", blocks},
                     {"num_parameters", memory[i].num_parameters},
                     {"parameter_bytes", memory[i].parameters},
                     {"gradient_bytes", memory[i].gradients},
                     {"optimizer_bytes", memory[i].optimizer},
                     {"activation_bytes", memory[i].activations},
                     {"working_bytes", memory[i].working},
                     {"peak_bytes", memory[i].peak()},
                     {"peak_live", memory[i].peak_live},
                     {"tensor_bytes_sent", traffic[i].tensor},
                     {"pipeline_bytes_sent", traffic[i].pipeline},
                     {"data_bytes_sent", traffic[i].data}});
  }
  const std::int64_t batch =
      run.training.micro_batch_size * schedule.microbatches * run.parallel.data_parallel_size();
  return {{"world_size", run.parallel.world_size},
          {"tensor", run.parallel.tensor_model_parallel_size},
          {"pipeline", run.parallel.pipeline_model_parallel_size},
          {"context", run.parallel.context_parallel_size},
          {"data", run.parallel.data_parallel_size()},
          {"schedule", schedule.kind},
          {"microbatches", schedule.microbatches},
          {"idle_fraction", plan::simulate(schedule, plan::kRelativeCosts).bubble_fraction},
          {"flops_per_step", plan::training_flops(run.model, run.training.seq_length, batch,
                                                  run.parallel.tensor_model_parallel_size)},
          {"ranks", ranks}};
}

}  // namespace

Offers plan_offers() { return {{"plan", "", kExtras, config::Use::kTrain}}; }

int plan(const Arguments& arguments) {
  if (print_verb_help(arguments,
                      {"plan [--world-size N] [--svg FILE] [--json FILE]", kExtras, config::Use::kTrain}))
    return kExitDone;
  config::Parsed parsed = read_settings(arguments, kExtras);
  set_world_size(parsed);
  const std::string missing = missing_of(parsed.run);
  const std::string assumed = assume_sizes(parsed);
  config::Run& run = parsed.run;
  config::derive(run);
  plan::require(run, plan::Purpose::kPlan, parsed.faults);
  for (const char* flag : {"--svg", "--json"}) require_writable(flag, extra(parsed, flag));
  fmt::print("{}{}", assumed, plan::describe(run));
  print_remarks(parsed, missing);
  if (const std::string file = extra(parsed, "--svg"); !file.empty()) {
    const plan::Schedule schedule = plan::schedule_of(run);
    write_file_atomically(file, plan::paint_svg(plan::simulate(schedule, plan::kRelativeCosts), schedule));
  }
  if (const std::string file = extra(parsed, "--json"); !file.empty()) {
    write_file_atomically(file, to_json(run).dump(2) + '\n');
  }
  return kExitDone;
}

}  // namespace colonnade::app
