// `colonnade plan`: what a run will need, for any world size, without starting it.
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

const std::vector<config::Extra> kExtras = {
    {"--world-size", 1, "number of ranks; default: the smallest that the sizes allow"},
    {"--svg", 1, "write the picture of the pipeline to this file"},
    {"--memory-svg", 1, "write the picture of the memory of each pipeline rank to this file"},
    {"--json", 1, "write the plan to this file"},
    {"--hardware", 1,
     "estimate the time of a step on a100, b200, h100, h200 or the hardware that this YAML file describes"},
    {"--expert-imbalance", 1,
     "rows that the fullest rank of an expert group is assumed to receive over their mean; default: 1, all alike"},
    {"--search", 0,
     "find the fastest layouts of --world-size ranks for this --global-batch-size that fit the --hardware"},
    {"--dry-run", 0,
     "build the real model of ranks without memory, run one step of the real code and compare it with the plan"},
    {"--rank", 1, "with --dry-run: the rank to build"},
    {"--all", 0, "with --dry-run: one rank of each kind, and whether they understand each other"},
    {"--yaml", 1, "with --search: write the settings of the best layout to this file"},
};

void set_world_size(config::Parsed& parsed) {
  config::Parallel& p = parsed.run.parallel;
  const std::string text = extra(parsed, "--world-size");
  if (text.empty()) {
    p.world_size = smallest_world(p);
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

/// Gives sizes that are missing, for a plan of no tokens says nothing; one line for each.
std::string assume_sizes(config::Parsed& parsed, bool searching) {
  config::Run& run = parsed.run;
  const auto absent = [&run](const char* key) {
    return !run.given.contains(key) && !run.at_fault.contains(key);
  };
  std::string said;
  if (absent("micro_batch_size") && run.training.micro_batch_size == 0 && !searching) {
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
        "--seq-length must be given, or --max-position-embeddings; got neither; write --seq-length N");
  }
  return said;
}

/// Takes --expert-imbalance; a fault where it would change nothing or cannot be. A line for a search, whose
/// layouts are not described.
std::string assume_imbalance(config::Parsed& parsed, bool searching) {
  if (!parsed.extras.contains("--expert-imbalance")) return "";
  config::Moe& moe = parsed.run.model.moe;
  const double given = extra_number(parsed, "--expert-imbalance", 1.5);
  const int ranks =
      searching ? static_cast<int>(moe.num_experts) : parsed.run.parallel.expert_model_parallel_size;
  const double most = layout::largest_imbalance(moe, std::max(ranks, 1));
  const auto refuse = [&parsed](const std::string& why) {
    parsed.faults.push_back("--expert-imbalance: " + why);
    return "";
  };
  if (moe.num_experts == 0) return refuse("is about experts; got a model without any; leave it out");
  if (moe.pad_expert_input_to_capacity)
    return refuse(
        "changes nothing where every expert is filled up; got --moe-pad-expert-input-to-capacity; leave one out");
  if (ranks <= 1)
    return refuse(
        "is about ranks that share experts; got --expert-model-parallel-size 1; leave it out, or raise that size");
  if (!(given >= 1 && given <= most))
    return refuse(fmt::format(
        "must be what the fullest rank receives over the mean, from 1 to {:g}, for a rank receives a row of a "
        "token once for each of its experts{}; got {:g}; write a number between them",
        most, moe.expert_capacity_factor ? " and no more than --moe-expert-capacity-factor" : "", given));
  moe.assumed_imbalance = given;
  return searching ? fmt::format(
                         "experts: assumed is a fullest expert rank with {:g} times the mean number of rows, "
                         "or what fewer ranks allow\n",
                         given)
                   : "";
}

/// Sizes without --vocab-size need the tokenizer's file; with it none is read, so that a plan needs no files.
void read_vocabulary(config::Parsed& parsed) {
  if (parsed.run.model.vocab_size == 0 && parsed.run.data.tokenizer_type != "NullTokenizer")
    job::check_tokenizer(parsed.run, parsed.faults);
}

/// What training needs and was not given, in words.
std::string missing_of(config::Run run) {
  config::derive(run);
  return rules::missing_for_training(run);
}

/// What the plan assumes, what does nothing, and what a run would need besides.
void print_remarks(const config::Parsed& parsed, const std::string& missing) {
  const config::Run& run = parsed.run;
  if (!parsed.extras.contains("--world-size"))
    fmt::print("world: --world-size is not given; planned is the smallest world, {} {} (data axis {})\n",
               run.parallel.world_size, run.parallel.world_size == 1 ? "rank" : "ranks",
               run.parallel.data_parallel_size());
  for (const std::string& note : run.notes) fmt::print("{}\n", note);
  for (const std::string& note : rules::idle_habits(run)) fmt::print("{}\n", note);
  if (!missing.empty()) fmt::print("training: {} must be given too\n", missing);
}

nlohmann::json to_json(const cost::StepTime& t) {
  return {{"step_seconds", t.step},
          {"compute_seconds", t.compute},
          {"tensor_seconds", t.tensor},
          {"context_seconds", t.context},
          {"expert_seconds", t.experts},
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
  return {{"candidates", result.candidates}, {"fit", result.fit},         {"too_big", result.too_big},
          {"slower", result.slower},         {"refused", result.refused}, {"best", best}};
}

nlohmann::json to_json(const cost::RunTime& t) {
  return {{"steps", t.steps}, {"seconds", t.seconds}, {"days", t.days()}, {"gpu_hours", t.gpu_hours()}};
}

/// Who holds which experts of the layers that have some; null without experts.
nlohmann::json experts_json(const config::Run& run) {
  if (run.model.moe.num_experts == 0) return nullptr;
  const layout::Mesh mesh(run.parallel);
  nlohmann::json all = nlohmann::json::array();
  for (const cost::HeldExperts& held : cost::held_experts(run))
    all.push_back({{"expert_rank", held.expert_rank},
                   {"part", held.part},
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
                     {"working_bytes", memory[i].working},
                     {"peak_bytes", memory[i].peak()},
                     {"start_up_bytes", memory[i].start_up()},
                     {"between_steps_bytes", memory[i].resident()},
                     {"evaluation_bytes", memory[i].evaluation_peak()},
                     {"peak_live", memory[i].peak_live},
                     {"tensor_bytes_sent", traffic[i].tensor},
                     {"context_bytes_sent", traffic[i].context},
                     {"expert_bytes_sent", traffic[i].experts},
                     {"pipeline_bytes_sent", traffic[i].pipeline},
                     {"data_bytes_sent", traffic[i].data},
                     {"outer_data_bytes_sent", traffic[i].outer_data},
                     {"stages_bytes_sent", traffic[i].stages}});
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

/// The hardware that was asked for; a fault when it cannot be read or is needed and missing.
std::optional<cost::Hardware> hardware_of(config::Parsed& parsed, bool needed) {
  const std::string name = extra(parsed, "--hardware");
  if (name.empty()) {
    if (needed) {
      parsed.faults.push_back(fmt::format(
          "--hardware: --search needs to know the devices; got none; write one of {}, or a YAML file",
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
        "a layout that fits is found by `plan --search`; more ranks, recomputation or sharded states need less "
        "memory each\n");
}

void add_to(nlohmann::json& json, const Verdict& verdict) {
  json["fits"] = verdict.fit.fits();
  json["needed_bytes"] = verdict.fit.needed;
  json["usable_bytes"] = verdict.fit.usable;
  json["estimate"] = to_json(verdict.step);
  if (verdict.run) json["run"] = to_json(*verdict.run);
}

/// The settings that differ from their defaults, as a file for --config.
std::string recipe_of(const config::Run& run) {
  std::istringstream defaults(config::dump({})), lines(config::dump(run));
  std::set<std::string> usual;
  for (std::string line; std::getline(defaults, line);) usual.insert(line);
  std::string text = "# The best layout that `colonnade plan --search` found, for --config.\n";
  for (std::string line; std::getline(lines, line);)
    if (!usual.contains(line)) text += line + '\n';
  return text;
}

/// `plan --search`. The model on one rank stands for all layouts: what it breaks, all of them break.
int search(config::Parsed& parsed, const std::optional<cost::Hardware>& hardware,
           const std::string& assumed) {
  config::Run bare = parsed.run;
  bare.parallel = {};
  bare.training.global_batch_size = bare.training.micro_batch_size = 1;
  config::derive(bare);
  if (parsed.run.training.global_batch_size < 1 && !parsed.run.at_fault.contains("global_batch_size")) {
    parsed.faults.emplace_back(
        "--global-batch-size must be given with --search, which chooses the micro-batch; got none; write "
        "--global-batch-size N");
  }
  if (!parsed.extras.contains("--world-size"))
    parsed.faults.emplace_back("--world-size must be given with --search; got none; write --world-size N");
  if (parsed.extras.contains("--dry-run"))
    parsed.faults.emplace_back(
        "--dry-run: is of one layout; got --search, which looks at many; run the best with `plan --config FILE "
        "--dry-run --all` after --yaml FILE");
  for (const char* flag : {"--svg", "--memory-svg"})
    if (parsed.extras.contains(flag))
      parsed.faults.push_back(fmt::format(
          "{0}: a picture is of one layout; got --search, which looks at many; draw the best with `plan "
          "--config FILE {0}` after --yaml FILE",
          flag));
  rules::require(bare, rules::Purpose::kPlan, parsed.faults);
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
    fmt::print("groups by length: {}\n", layout::hybrid_text(derived));
  }
  fmt::print("\n{}", cost::step_time_text(best.time, *hardware));
  if (const auto time = cost::run_time(parsed.run, best.time.step))
    fmt::print("{}\n", cost::run_time_text(*time));
  fmt::print("\nthe best as flags beside those given: {}\n",
             shell_line(cost::flags_between(parsed.run, best.run)));
  if (const std::string file = extra(parsed, "--yaml"); !file.empty())
    write_file_atomically(file, recipe_of(best.run));
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
  // Planned are the GPUs that the line is for, wherever the plan is made.
  if (parsed.run.training.distributed_backend == "nccl" && !parsed.run.given.contains("device"))
    parsed.run.training.distributed_backend.reset();
  job::describe_model(parsed.run, parsed.faults);
  read_vocabulary(parsed);
  set_world_size(parsed);
  const bool searching = parsed.extras.contains("--search");
  const auto hardware = hardware_of(parsed, searching);
  const std::string missing = missing_of(parsed.run);
  std::string assumed = assume_sizes(parsed, searching);
  assumed += assume_imbalance(parsed, searching);
  if (searching) return search(parsed, hardware, assumed);
  if (parsed.extras.contains("--yaml"))
    parsed.faults.emplace_back("--yaml: belongs to --search; got no --search; leave it out or add --search");
  config::Run& run = parsed.run;
  config::derive(run);
  check_dry_run(parsed);
  rules::require(run, rules::Purpose::kPlan, parsed.faults);
  for (const char* flag : {"--svg", "--memory-svg", "--json"}) require_writable(flag, extra(parsed, flag));
  const config::Run planned = layout::with_equal_groups(run);
  const auto verdict = hardware ? std::optional(verdict_of(planned, *hardware)) : std::nullopt;
  if (verdict) fmt::print("{}\n", cost::fit_text(verdict->fit));
  if (run.parallel.hybrid_context_parallel) fmt::print("groups by length: {}\n", layout::hybrid_text(run));
  fmt::print("{}{}", assumed, cost::describe(planned));
  if (verdict) print_estimate(*verdict, *hardware);
  print_remarks(parsed, missing);
  if (const std::string file = extra(parsed, "--svg"); !file.empty()) {
    const schedule::Schedule schedule = cost::schedule_of(planned);
    write_file_atomically(file,
                          schedule::paint_svg(schedule::simulate(schedule, cost::kRelativeCosts), schedule));
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
