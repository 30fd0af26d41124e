// See checkpoint.h.
#include "colonnade/job/checkpoint.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/config/dump.h"
#include "colonnade/convert/slices.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/continued.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/names.h"

namespace colonnade::job {
namespace {

using checkpoint::Slice;
using nlohmann::json;

/// Every place of a save is one where a fault can be asked for.
constexpr bool faults_know_every_save_point() {
  return std::ranges::all_of(checkpoint::kSavePoints, [](std::string_view point) {
    return std::ranges::any_of(fault::kPoints, [&](std::string_view name) {
      return name.starts_with("save-") && name.substr(5) == point;
    });
  });
}
static_assert(faults_know_every_save_point());

void append(std::vector<Slice>& all, std::vector<Slice> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// What the fp32 values of a 16-bit parameter are kept under.
std::string main_name(const optim::Segment& s) { return "optimizer.fp32_param." + s.parameter->spec.name; }

/// The optimizer's tensors of one segment by the name they are kept under.
std::vector<std::pair<std::string, at::Tensor>> states_of(const optim::Segment& s) {
  std::vector<std::pair<std::string, at::Tensor>> states;
  const std::string& name = s.parameter->spec.name;
  if (s.exp_avg.defined()) states.emplace_back("optimizer.exp_avg." + name, s.exp_avg);
  if (s.exp_avg_sq.defined()) states.emplace_back("optimizer.exp_avg_sq." + name, s.exp_avg_sq);
  if (!s.main.is_same(s.model)) states.emplace_back(main_name(s), s.main);
  return states;
}

std::vector<Slice> optimizer_slices(Job& job) {
  std::vector<Slice> slices;
  for (const optim::Segment& s : job.optimizer().segments())
    for (const auto& [name, state] : states_of(s))
      append(slices, convert::state_slices(name, *s.parameter, s.begin, state,
                                           job.buffers().counts(s.parameter->spec.family)));
  return slices;
}

/// That of the family that holds the model; nothing for parameters that keep their own names.
std::optional<models::hf::Naming> naming_of(const Job& job) {
  return job.model.of_settings ? models::hf::naming_of(job.run.model) : std::nullopt;
}

/// Of what lies here of each parameter: all of it, or this rank's part.
std::vector<Slice> model_slices(Job& job) {
  const auto naming = naming_of(job);
  std::vector<Slice> slices;
  for (const tensor::Parameter* parameter : job.parameters()) {
    const data_parallel::Here here = job.buffers().here(*parameter);
    append(slices, convert::model_slices(*parameter, here.begin, here.values, naming, here.saves));
  }
  return slices;
}

/// Slices of the tensors that are saved under a second name.
std::vector<Slice> copied_slices(const Job& job, const std::vector<Slice>& slices) {
  std::vector<Slice> copies;
  if (!job.model.of_settings) return copies;
  for (const models::hf::Copy& copy : models::hf::copies_to_save(job.run.model))
    for (const Slice& slice : slices)
      if (slice.name == copy.original) copies.emplace_back(slice).name = copy.name;
  return copies;
}

const char* kind_of(const Job& job) {
  return job.run.optimizer.optimizer == config::OptimizerKind::kAdam ? "adam" : "sgd";
}

json state_of(Job& job) {
  const optim::LossScale& scale = job.optimizer().loss_scale();
  return {{"iteration", job.counters.iteration},
          {"consumed_samples", job.counters.consumed_samples},
          {"skipped", job.counters.skipped},
          {"optimizer", {{"kind", kind_of(job)}, {"steps", job.optimizer().steps()}}},
          {"loss_scale",
           {{"scale", scale.scale},
            {"growth", scale.growth},
            {"hysteresis", scale.hysteresis},
            {"dynamic", scale.dynamic}}},
          {"settings", config::values(with_absolute_paths(job.run))}};
}

/// Moments of one optimizer are no momentum of another.
void require_same_kind(const Job& job, const checkpoint::Source& source) {
  if (!source.state().is_object()) return;
  const auto kind = source.state().at("optimizer").at("kind").get<std::string>();
  if (kind == kind_of(job)) return;
  throw ConfigError(fmt::format(
      "--optimizer must be the one whose states are loaded; got {} and {} in {}; write --optimizer "
      "{}, or begin with new states with --no-load-optim or --finetune",
      kind_of(job), kind, source.folder().string(), kind));
}

void read_state(const checkpoint::Source& source, const std::string& name, const optim::Segment& s,
                const at::Tensor& state) {
  for (const Slice& slice : convert::state_slices(name, *s.parameter, s.begin, state, /*owner=*/true))
    source.read_into(slice);
}

/// The main values of a 16-bit run out of the weights of one in fp32, which keeps no others. False when the
/// weights have 16 bits themselves.
bool read_main_from_weights(const checkpoint::Source& source, const Job& job, const optim::Segment& s) {
  const auto naming = naming_of(job);
  for (const Slice& slice : convert::model_slices(*s.parameter, s.begin, s.main, naming, /*owner=*/true)) {
    if (c10::elementSize(source.info(slice.name).dtype) < 4) return false;
    source.read_into(slice);
  }
  return true;
}

/// Moments and main values, also where the checkpoint's run had another precision.
void read_optimizer_tensors(Job& job, const checkpoint::Source& source) {
  for (const optim::Segment& s : job.optimizer().segments()) {
    for (const auto& [name, state] : states_of(s)) {
      if (source.has(name)) {
        read_state(source, name, s, state);
      } else if (name != main_name(s) || !read_main_from_weights(source, job, s)) {
        throw ConfigError(
            fmt::format("{}: the optimizer state {} must be in it to continue; got none; add "
                        "--no-load-optim, or --finetune to start anew",
                        source.folder().string(), name));
      }
    }
    // The weights of a 16-bit run are copies, rounded; its fp32 values are the weights of this one.
    if (s.main.is_same(s.model) && source.has(main_name(s))) read_state(source, main_name(s), s, s.main);
  }
  job.optimizer().adopt_main();
}

/// Step count and loss scale, which belong to the optimizer's tensors.
void read_optimizer_state(Job& job, const json& state) {
  job.optimizer().set_steps(state.at("optimizer").at("steps"));
  optim::LossScale scale = job.optimizer().loss_scale();
  const json& kept = state.at("loss_scale");
  if (scale.dynamic && kept.value("dynamic", true)) {  // files of before say only dynamic ones
    scale.scale = kept.at("scale");
    scale.growth = kept.at("growth");
    scale.hysteresis = kept.at("hysteresis");
    job.optimizer().set_loss_scale(scale);
  }
}

}  // namespace

checkpoint::Snapshot snapshot(Job& job, const json& more, const StepFiles& files) {
  checkpoint::Snapshot shot;
  shot.model = model_slices(job);
  append(shot.model, copied_slices(job, shot.model));
  if (!job.run.checkpoint.no_save_optim) shot.optimizer = optimizer_slices(job);
  shot.state = state_of(job);
  shot.state.update(more);
  if (job.model.of_settings) shot.hf_config = models::hf::config_of(job.run.model);
  shot.state["model"] = {
      {"of_settings", job.model.of_settings},
      {"hugging_face_class", shot.hf_config.is_null() ? json() : shot.hf_config.at("architectures").at(0)}};
  if (!shot.hf_config.is_null())
    for (const char* id : {"bos_token_id", "eos_token_id"})
      shot.hf_config[id] =
          files.config_ids.contains(id)
              ? files.config_ids.at(id)
              : shot.state.value(json::json_pointer(fmt::format("/tokenizer/{}", id)), json());
  shot.files = files.files;
  if (!files.copies.empty()) shot.state["tokenizer_files"] = files.copies;
  return shot;
}

checkpoint::SaveResult save(Job& job, const std::filesystem::path& run_folder, const json& more,
                            const checkpoint::SaveOptions& options, const StepFiles& files) {
  progress().set_phase("checkpoint");
  checkpoint::SaveOptions with = options;
  if (job.run.checkpoint.save_retain_interval)
    with.retain_interval = *job.run.checkpoint.save_retain_interval;
  if (!with.at) with.at = [](std::string_view at) { fault::point(fmt::format("save-{}", at)); };
  return checkpoint::save(run_folder, job.counters.iteration, snapshot(job, more, files), job.ranks.world(),
                          with);
}

void restore(Job& job, const checkpoint::Source& source, Restore what) {
  const at::NoGradGuard no_grad;
  const bool with_optimizer = what == Restore::kContinue && !job.run.checkpoint.no_load_optim;
  require_same_builder(source, job.model.of_settings);
  check_taken(source, job.run.model, /*reports=*/job.ranks.world().rank() == 0);
  if (with_optimizer) require_same_kind(job, source);
  for (const Slice& slice : model_slices(job)) source.read_into(slice);
  if (with_optimizer) {
    read_optimizer_tensors(job, source);
    read_optimizer_state(job, source.state());
  } else {
    job.optimizer().adopt_parameters();
  }
  if (what == Restore::kContinue) job.counters = resumed_counters(source.state(), job.run);
}

Counters counters_of(const json& state) {
  return {.iteration = state.at("iteration"),
          .consumed_samples = state.at("consumed_samples"),
          .skipped = state.at("skipped")};
}

Counters resumed_counters(const json& state, const config::Run& run) {
  const std::optional<std::int64_t>& iteration = run.checkpoint.override_ckpt_iteration;
  if (!iteration) return counters_of(state);
  return {
      .iteration = *iteration, .consumed_samples = *iteration * run.training.global_batch_size, .skipped = 0};
}

void require_same_builder(const checkpoint::Source& source, bool of_settings) {
  const bool saved =
      !source.state().is_object() || source.state().value(json::json_pointer("/model/of_settings"), true);
  if (saved == of_settings) return;
  std::vector<std::string> names = source.names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("optimizer."); });
  throw ConfigError(fmt::format(
      "{}: its model must be built as it was when it was saved; got {} ({}, ...) to load into {}; {} [model-builder]",
      source.folder().string(),
      saved ? "a model that settings describe" : "a model of a program's own builder, with names of its own",
      names.empty() ? "no tensors" : names.front(),
      saved ? "a model of a program's own builder" : "the model that settings describe",
      saved ? "load it with `colonnade`, or begin with a new folder"
            : "load it with the program that saved it"));
}

}  // namespace colonnade::job
