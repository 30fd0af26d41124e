// `colonnade plan`: memory, traffic and step time of a run, for any world size, without starting it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/shell.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/dump.h"
#include "colonnade/cost/communication.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/memory_picture.h"
#include "colonnade/cost/search.h"
#include "colonnade/cost/step_time.h"
#include "colonnade/cost/verdict.h"
#include "colonnade/job/prepare.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/rules/no_effect.h"
#include "colonnade/rules/rules.h"
#include "extras.h"
#include "flags.h"
#include "plan_dry_run.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

const std::vector<config::VerbFlag> kExtras = {
    {"--world-size", "N", "number of ranks; default: the smallest for the given parallel sizes"},
    {"--svg", "FILE", "write the pipeline schedule as SVG to this file"},
    {"--memory-svg", "FILE", "write the memory of each pipeline rank as SVG to this file"},
    {"--json", "FILE", "write the plan as JSON to this file"},
    {"--hardware", "NAME",
     "estimate the step time on a100, b200, h100, h200, or the hardware that this YAML file describes"},
    {"--expert-imbalance", "X",
     "assumed rows of the most loaded expert rank relative to the mean; default: 1, balanced routing"},
    {"--search", "",
     "find the fastest layouts that fit the --hardware, for this --world-size and --global-batch-size"},
    {"--dry-run", "",
     "build the real model of ranks on meta tensors, run one training step and compare it with the plan"},
    {"--rank", "R", "with --dry-run: rank to build"},
    {"--all", "", "with --dry-run: build one rank of each class and check their communication"},
    {"--yaml", "FILE", "with --search: write the settings of the best layout to this file"},
};

void set_world_size(config::Parsed& parsed) {
  config::Parallel& p = parsed.run.parallel;
  const std::string text = extra(parsed, "--world-size");
  if (text.empty()) {
    p.world_size = layout::smallest_world(p);
    return;
  }
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc{} && end == text.data() + text.size() && size > 0) {
    p.world_size = size;
  } else {
    parsed.faults.push_back(
        fmt::format("--world-size must be a number of ranks above 0; got '{}'; give e.g. 8", text));
  }
}

/// Sets missing sizes, without which a plan would be empty. Returns a note for each.
std::string assume_sizes(config::Parsed& parsed, bool searching) {
  config::Run& run = parsed.run;
  const auto absent = [&run](const char* key) {
    return !run.given.contains(key) && !run.invalid_keys.contains(key);
  };
  std::string notes;
  if (absent("micro_batch_size") && run.training.micro_batch_size == 0 && !searching) {
    run.training.micro_batch_size = 1;
    notes += "batch: --micro-batch-size is not given; assuming 1 sequence\n";
  }
  if (!absent("seq_length") || run.training.seq_length != 0) return notes;
  if (run.model.max_position_embeddings > 0) {
    run.training.seq_length = run.model.max_position_embeddings;
    notes += fmt::format("batch: --seq-length is not given; assuming --max-position-embeddings, {} tokens\n",
                         run.training.seq_length);
  } else if (!run.invalid_keys.contains("max_position_embeddings")) {
    parsed.faults.emplace_back(
        "--seq-length must be given, or --max-position-embeddings; got neither; write --seq-length N");
  }
  return notes;
}

/// Applies --expert-imbalance, or adds a fault if it has no effect or is out of range. Returns a note for a
/// search, which describes no layouts.
std::string assume_imbalance(config::Parsed& parsed, bool searching) {
  if (!parsed.extras.contains("--expert-imbalance")) return "";
  config::Moe& moe = parsed.run.model.moe;
  const double given = extra_number(parsed, "--expert-imbalance", 1.5);
  const int ranks =
      searching ? static_cast<int>(moe.num_experts) : parsed.run.parallel.expert_model_parallel_size;
  const double most = layout::largest_imbalance(moe, std::max(ranks, 1));
  const auto reject = [&parsed](const std::string& why) {
    parsed.faults.push_back("--expert-imbalance " + why);
    return "";
  };
  if (moe.num_experts == 0) return reject("requires an MoE model (--num-experts); got none; remove the flag");
  if (moe.pad_expert_input_to_capacity)
    return reject(
        "has no effect with padded expert inputs; got --moe-pad-expert-input-to-capacity; remove one of them");
  if (ranks <= 1)
    return reject(
        "requires expert parallelism; got --expert-model-parallel-size 1; raise that size, or remove the flag");
  if (!(given >= 1 && given <= most))
    return reject(fmt::format(
        "must be from 1 to {:g}, the largest possible load of an expert rank relative to the mean{}; got {:g}; "
        "write a number in this range",
        most, moe.expert_capacity_factor ? ", limited by --moe-expert-capacity-factor" : "", given));
  moe.assumed_imbalance = given;
  return searching
             ? fmt::format(
                   "experts: assuming {:g} times the mean number of rows on the most loaded expert rank, "
                   "less if a layout has fewer expert ranks\n",
                   given)
             : "";
}

/// Reads the vocabulary size from the tokenizer unless --vocab-size is given, so that a plan needs no files
/// with it.
void read_vocabulary(config::Parsed& parsed) {
  if (parsed.run.model.vocab_size == 0 && parsed.run.data.tokenizer_type != "NullTokenizer")
    job::check_tokenizer(parsed.run, parsed.faults);
}

/// Settings that training requires and that are missing, as text.
std::string missing_for_training(config::Run run) {
  config::derive(run);
  return rules::missing_for_training(run);
}

/// Prints the plan's assumptions, settings without effect, and settings that training requires.
void print_remarks(const config::Parsed& parsed, const std::string& missing) {
  const config::Run& run = parsed.run;
  if (!parsed.extras.contains("--world-size"))
    fmt::print(
        "world: --world-size is not given; assuming the smallest world, {} {} (data-parallel size {})\n",
        run.parallel.world_size, run.parallel.world_size == 1 ? "rank" : "ranks",
        run.parallel.data_parallel_size());
  for (const std::string& note : run.notes) fmt::print("{}\n", note);
  for (const std::string& note : rules::no_effect_notes(run)) fmt::print("{}\n", note);
  if (!missing.empty()) fmt::print("training: {} must be given too\n", missing);
}

nlohmann::json to_json(const cost::StepTime& t) {
  return {{"step_seconds", t.step},
          {"compute_seconds", t.compute},
          {"tensor_seconds", t.tensor},
          {"context_seconds", t.context},
          {"expert_seconds", t.dispatch},
          {"idle_seconds", t.bubble},
          {"data_seconds", t.data},
          {"optimizer_seconds", t.optimizer},
          {"other_seconds", t.other},
          {"tokens_per_second_per_device", t.tokens_per_second_per_device},
          {"mfu", t.mfu}};
}

nlohmann::json to_json(const cost::SearchResult& result, const config::Run& from) {
  nlohmann::json best = nlohmann::json::array();
  for (const cost::FoundLayout& found : result.best) {
    best.push_back({{"flags", cost::flags_between(from, found.run)},
                    {"peak_bytes", found.peak_bytes},
                    {"estimate", to_json(found.time)}});
  }
  return {{"candidates", result.candidates}, {"fit", result.fit},          {"too_big", result.too_big},
          {"slower", result.pruned},         {"refused", result.rejected}, {"best", best}};
}

nlohmann::json to_json(const cost::RunTime& t) {
  return {{"steps", t.steps}, {"seconds", t.seconds}, {"days", t.days()}, {"gpu_hours", t.gpu_hours()}};
}

/// Experts of each rank; null without experts.
nlohmann::json experts_json(const config::Run& run) {
  if (run.model.moe.num_experts == 0) return nullptr;
  const layout::Mesh mesh(run.parallel);
  nlohmann::json all = nlohmann::json::array();
  for (const cost::ExpertPlacement& held : cost::expert_placements(run))
    all.push_back({{"expert_rank", held.expert_rank},
                   {"part", held.shard},
                   {"ranks", held.ranks},
                   {"first", held.first},
                   {"count", held.count}});
  return {{"num_experts", run.model.moe.num_experts},
          {"tensor", mesh.size(layout::Axis::kEtp)},
          {"expert", mesh.size(layout::Axis::kEp)},
          {"data", mesh.size(layout::Axis::kEdp)},
          {"assumed_imbalance", run.model.moe.assumed_imbalance},
          {"held", all}};
}

nlohmann::json to_json(const config::Run& run) {
  const schedule::Schedule schedule = cost::schedule_of(run);
  const auto memory = cost::plan_memory(run);
  const auto traffic = cost::plan_traffic(run);
  nlohmann::json ranks = nlohmann::json::array();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    nlohmann::json blocks = nlohmann::json::array();
    for (const auto& stage : memory[i].stages) blocks.push_back(cost::blocks_text(stage, run.model));
    ranks.push_back({{"pipeline_rank", i},
                     {"blocks", blocks},
                     {"num_parameters", memory[i].num_parameters},
                     {"parameter_bytes", memory[i].parameters},
                     {"gradient_bytes", memory[i].gradients},
                     {"optimizer_bytes", memory[i].optimizer},
                     {"activation_bytes", memory[i].activations},
                     {"working_bytes", memory[i].workspace},
                     {"peak_bytes", memory[i].peak()},
                     {"start_up_bytes", memory[i].start_up()},
                     {"between_steps_bytes", memory[i].resident()},
                     {"evaluation_bytes", memory[i].evaluation_peak()},
                     {"peak_in_flight", memory[i].peak_in_flight},
                     {"tensor_bytes_sent", traffic[i].tensor},
                     {"context_bytes_sent", traffic[i].context},
                     {"expert_bytes_sent", traffic[i].dispatch},
                     {"pipeline_bytes_sent", traffic[i].pipeline},
                     {"data_bytes_sent", traffic[i].data},
                     {"outer_data_bytes_sent", traffic[i].outer_data},
                     {"stages_bytes_sent", traffic[i].shared_embeddings}});
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
          {"idle_fraction", schedule::simulate(schedule, cost::kRelativeCosts).bubble_fraction},
          {"flops_per_step", cost::training_flops(run.model, cost::sample_length(run), batch,
                                                  run.parallel.tensor_model_parallel_size)},
          {"ranks", ranks},
          {"experts", experts_json(run)}};
}

/// The hardware of --hardware; adds a fault if it cannot be read, or is `needed` and missing.
std::optional<cost::Hardware> hardware_of(config::Parsed& parsed, bool needed) {
  const std::string name = extra(parsed, "--hardware");
  if (name.empty()) {
    if (needed) {
      parsed.faults.push_back(
          fmt::format("--hardware must be given with --search; got none; write one of {}, or a YAML file",
                      fmt::join(cost::hardware_names(), ", ")));
    }
    return std::nullopt;
  }
  try {
    return cost::read_hardware(name);
  } catch (const ConfigError& error) {
    parsed.faults.emplace_back(error.what());
    return std::nullopt;
  }
}

/// Fit, step time and run time of a layout on some hardware.
struct Verdict {
  cost::Fit fit;
  cost::StepTime step;
  std::optional<cost::RunTime> run;
};

Verdict verdict_of(const config::Run& run, const cost::Hardware& hardware) {
  Verdict verdict{cost::fit_of(run, hardware), cost::estimate_step(run, hardware), {}};
  verdict.run = cost::run_time(run, verdict.step.step);
  return verdict;
}

void print_estimate(const Verdict& verdict, const cost::Hardware& hardware) {
  fmt::print("\n{}", cost::step_time_text(verdict.step, hardware));
  if (verdict.run) fmt::print("{}\n", cost::run_time_text(*verdict.run));
  if (!verdict.fit.fits())
    fmt::print(
        "`plan --search` finds layouts that fit; more ranks, recomputation or sharding reduce the memory per "
        "rank\n");
}

void add_to(nlohmann::json& json, const Verdict& verdict) {
  json["fits"] = verdict.fit.fits();
  json["needed_bytes"] = verdict.fit.needed;
  json["usable_bytes"] = verdict.fit.usable;
  json["estimate"] = to_json(verdict.step);
  if (verdict.run) json["run"] = to_json(*verdict.run);
}

/// Non-default settings as a YAML file for --config.
std::string yaml_of(const config::Run& run) {
  std::istringstream defaults(config::dump({})), lines(config::dump(run));
  std::set<std::string> default_lines;
  for (std::string line; std::getline(defaults, line);) default_lines.insert(line);
  std::string text = "# The best layout that `colonnade plan --search` found, for --config.\n";
  for (std::string line; std::getline(lines, line);)
    if (!default_lines.contains(line)) text += line + '\n';
  return text;
}

/// `plan --search`. Rules are checked on a single rank first: every layout breaks the rules that it breaks.
int search(config::Parsed& parsed, const std::optional<cost::Hardware>& hardware,
           const std::string& assumed) {
  config::Run single_rank = parsed.run;
  single_rank.parallel = {};
  single_rank.training = config::with_constant_batch_size(single_rank.training, 1);
  single_rank.training.micro_batch_size = 1;
  config::derive(single_rank);
  if (const std::int64_t last = config::final_size_of_step_schedule(parsed.run.training);
      last > 0 && parsed.run.training.global_batch_size == 0)
    parsed.run.training.global_batch_size = last;
  if (parsed.run.training.global_batch_size < 1 && !parsed.run.invalid_keys.contains("global_batch_size")) {
    parsed.faults.emplace_back(
        "--global-batch-size must be given with --search, which chooses the micro-batch; got none; write "
        "--global-batch-size N");
  }
  if (!parsed.extras.contains("--world-size"))
    parsed.faults.emplace_back("--world-size must be given with --search; got none; write --world-size N");
  if (parsed.extras.contains("--dry-run"))
    parsed.faults.emplace_back(
        "--dry-run must not be used with --search, which evaluates many layouts; got both; use --yaml FILE and "
        "`plan --config FILE --dry-run --all`");
  for (const char* flag : {"--svg", "--memory-svg"})
    if (parsed.extras.contains(flag))
      parsed.faults.push_back(fmt::format(
          "{0} must not be used with --search, which evaluates many layouts; got both; use --yaml FILE and "
          "`plan --config FILE {0}`",
          flag));
  rules::require(single_rank, rules::Purpose::kPlan, parsed.faults);
  for (const char* flag : {"--json", "--yaml"}) require_writable(flag, extra(parsed, flag));
  const cost::SearchResult result = cost::search_layouts(parsed.run, *hardware);
  fmt::print("{}{}", assumed, cost::search_text(result, *hardware));
  if (const std::string file = extra(parsed, "--json"); !file.empty())
    write_file_atomically(file, to_json(result, parsed.run).dump(2) + '\n');
  if (result.best.empty()) {
    throw ConfigError(fmt::format(
        "--search: some layout must fit; got none of {}; use more ranks, devices with more memory or a "
        "shorter sequence",
        result.candidates));
  }
  const cost::FoundLayout& best = result.best.front();
  if (config::Run derived = best.run; derived.parallel.hybrid_context_parallel) {
    config::derive(derived);
    fmt::print("hybrid context parallelism: {}\n", layout::hybrid_context_text(derived));
  }
  fmt::print("\n{}", cost::step_time_text(best.time, *hardware));
  if (const auto time = cost::run_time(parsed.run, best.time.step))
    fmt::print("{}\n", cost::run_time_text(*time));
  fmt::print("\nbest layout as additional flags: {}\n",
             shell_join(cost::flags_between(parsed.run, best.run)));
  if (const std::string file = extra(parsed, "--yaml"); !file.empty())
    write_file_atomically(file, yaml_of(best.run));
  return kExitDone;
}

}  // namespace

Offers plan_offers() { return {{"plan", "", kExtras, config::Use::kTrain}}; }

int plan(const Arguments& arguments) {
  if (print_verb_help(
          arguments,
          {"plan [--world-size N] [--hardware NAME] [--expert-imbalance X] [--dry-run --rank R|--all] [--search] [--svg FILE] [--memory-svg FILE] [--json FILE] [--yaml FILE]",
           kExtras, config::Use::kTrain}))
    return kExitDone;
  config::Parsed parsed = read_settings(arguments, kExtras);
  // NCCL implies GPUs, even if this machine has none.
  if (parsed.run.training.distributed_backend == "nccl" && !parsed.run.given.contains("device"))
    parsed.run.training.distributed_backend.reset();
  job::describe_model(parsed.run, parsed.faults);
  read_vocabulary(parsed);
  set_world_size(parsed);
  const bool searching = parsed.extras.contains("--search");
  const auto hardware = hardware_of(parsed, searching);
  const std::string missing = missing_for_training(parsed.run);
  std::string assumed = assume_sizes(parsed, searching);
  assumed += assume_imbalance(parsed, searching);
  if (searching) return search(parsed, hardware, assumed);
  if (parsed.extras.contains("--yaml"))
    parsed.faults.emplace_back("--yaml requires --search; got none; add --search, or remove --yaml");
  config::Run& run = parsed.run;
  config::derive(run);
  check_dry_run(parsed);
  rules::require(run, rules::Purpose::kPlan, parsed.faults);
  for (const char* flag : {"--svg", "--memory-svg", "--json"}) require_writable(flag, extra(parsed, flag));
  const config::Run planned = layout::with_fixed_context_size(run);
  const auto verdict = hardware ? std::optional(verdict_of(planned, *hardware)) : std::nullopt;
  if (verdict) fmt::print("{}\n", cost::fit_text(verdict->fit));
  if (run.parallel.hybrid_context_parallel)
    fmt::print("hybrid context parallelism: {}\n", layout::hybrid_context_text(run));
  fmt::print("{}{}", assumed, cost::describe(planned));
  if (verdict) print_estimate(*verdict, *hardware);
  print_remarks(parsed, missing);
  if (const std::string file = extra(parsed, "--svg"); !file.empty()) {
    const schedule::Schedule schedule = cost::schedule_of(planned);
    write_file_atomically(file,
                          schedule::render_svg(schedule::simulate(schedule, cost::kRelativeCosts), schedule));
  }
  if (const std::string file = extra(parsed, "--memory-svg"); !file.empty())
    write_file_atomically(file, cost::memory_svg(cost::plan_memory(planned)));
  const std::string file = extra(parsed, "--json");
  nlohmann::json json = file.empty() ? nlohmann::json() : to_json(planned);
  if (verdict) add_to(json, *verdict);
  dry_run_ranks(parsed, json);
  if (!file.empty()) write_file_atomically(file, json.dump(2) + '\n');
  return kExitDone;
}

}  // namespace colonnade::app
