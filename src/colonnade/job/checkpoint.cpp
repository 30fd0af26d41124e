// See checkpoint.h.
#include "colonnade/job/checkpoint.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/dump.h"
#include "colonnade/config/optimizers.h"
#include "colonnade/convert/megatron/writer.h"
#include "colonnade/convert/slices.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/optim/scaled.h"

namespace colonnade::job {
namespace {

using checkpoint::Slice;
using nlohmann::json;

/// Every save point accepts an injected fault.
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

/// Name of main parameters in a checkpoint, which has them if they are not the parameters themselves.
std::string main_name(const optim::Segment& s) { return "optimizer.fp32_param." + s.parameter->spec.name; }

/// A tensor of the optimizer, under its name in a checkpoint.
struct NamedState {
  std::string name;
  at::Tensor stored, scale;  ///< optim/scaled.h
};

std::vector<NamedState> states_of(const optim::Segment& s) {
  std::vector<NamedState> states;
  const std::string& name = s.parameter->spec.name;
  for (std::size_t i = 0; i < s.states.size(); ++i)
    states.push_back({fmt::format("optimizer.{}.{}", s.rule->states()[i], name), s.states[i], s.scales[i]});
  if (s.has_main_copy()) states.push_back({main_name(s), s.main, s.main_scale});
  return states;
}

std::vector<Slice> optimizer_slices(Job& job) {
  std::vector<Slice> slices;
  for (const optim::Segment& s : job.optimizer().segments())
    for (const NamedState& state : states_of(s))
      append(slices, convert::state_slices(state.name, *s.parameter, s.begin,
                                           optim::unscaled(state.stored, state.scale),
                                           job.buffers().is_primary_replica(s.parameter->spec.param_group)));
  return slices;
}

/// Hugging Face naming of the model; none for parameters that keep their own names.
std::optional<models::hf::Naming> naming_of(const Job& job) {
  return job.model.from_settings ? models::hf::naming_of(job.run.model) : std::nullopt;
}

/// Slices of every parameter's local values, in Dtypes::parameter: the full tensor or this rank's shard.
std::vector<Slice> model_slices(Job& job) {
  const auto naming = naming_of(job);
  std::vector<Slice> slices;
  for (const tensor::Parameter* parameter : job.parameters()) {
    const data_parallel::LocalSlice here = job.buffers().local_slice(*parameter);
    append(slices, convert::model_slices(*parameter, here.begin, here.values, naming, here.is_saver));
  }
  return slices;
}

/// Slices of tensors that are saved under a second name.
std::vector<Slice> copied_slices(const Job& job, const std::vector<Slice>& slices) {
  std::vector<Slice> copies;
  if (!job.model.from_settings) return copies;
  for (const models::hf::Copy& copy : models::hf::copies_to_save(job.run.model))
    for (const Slice& slice : slices)
      if (slice.name == copy.original) copies.emplace_back(slice).name = copy.name;
  return copies;
}

std::string_view kind_of(const Job& job) { return config::traits_of(job.run.optimizer.optimizer).name; }

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

/// Why the optimizer states of a checkpoint are not used; "" where they are.
std::string dropped_states(const json& state) {
  return state.is_object() ? state.value(json::json_pointer("/optimizer/dropped"), "") : "";
}

/// Rejects optimizer states of another optimizer: they have another meaning.
void require_same_kind(const Job& job, const checkpoint::CheckpointReader& source) {
  if (!source.state().is_object()) return;
  const auto kind = source.state().at("optimizer").at("kind").get<std::string>();
  if (kind == kind_of(job)) return;
  throw ConfigError(fmt::format(
      "--optimizer must match the loaded optimizer states; got {} and {} in {}; set --optimizer {}, or start with "
      "new states with --no-load-optim or --finetune",
      kind_of(job), kind, source.folder().string(), kind));
}

/// Values of `stored` to be read: the tensor itself, or with a scale fp32 zeros, to be passed to
/// optim::store.
at::Tensor values_to_read(const at::Tensor& stored, const at::Tensor& scale) {
  return scale.defined() ? at::zeros(stored.sizes(), stored.options().dtype(at::kFloat)) : stored;
}

void read_state(const checkpoint::CheckpointReader& source, const optim::Segment& s,
                const NamedState& state) {
  const at::Tensor values = values_to_read(state.stored, state.scale);
  for (const Slice& slice : convert::state_slices(state.name, *s.parameter, s.begin, values, /*owner=*/true))
    source.read_into(slice);
  if (state.scale.defined()) optim::store(values, state.stored, state.scale);
}

/// Reads main values from the weights of a checkpoint that stores no separate ones, such as that of an fp32
/// run. False when its weights are narrower than fp32.
bool read_main_from_weights(const checkpoint::CheckpointReader& source, const Job& job,
                            const optim::Segment& s) {
  const auto naming = naming_of(job);
  const at::Tensor values = values_to_read(s.main, s.main_scale);
  for (const Slice& slice : convert::model_slices(*s.parameter, s.begin, values, naming, /*owner=*/true)) {
    if (c10::elementSize(source.info(slice.name).dtype) < c10::elementSize(slice.data.scalar_type()))
      return false;
    source.read_into(slice);
  }
  if (s.main_scale.defined()) optim::store(values, s.main, s.main_scale);
  return true;
}

/// Reads states and main values, whatever the precision of the checkpoint's run.
void read_optimizer_tensors(Job& job, const checkpoint::CheckpointReader& source) {
  for (const optim::Segment& s : job.optimizer().segments()) {
    for (const NamedState& state : states_of(s)) {
      if (source.has(state.name)) {
        read_state(source, s, state);
      } else if (state.name != main_name(s) || !read_main_from_weights(source, job, s)) {
        throw ConfigError(fmt::format(
            "{}: a checkpoint to resume from must hold the optimizer state {}; got none; add --no-load-optim, or "
            "--finetune to start a new run with its weights",
            source.folder().string(), state.name));
      }
    }
    // 16-bit weights are rounded copies; the checkpoint's fp32 main values become this run's weights.
    if (!s.has_main_copy() && source.has(main_name(s))) read_state(source, s, {main_name(s), s.main, {}});
  }
  job.optimizer().adopt_main();
}

/// Reads the step count and the loss scale, which belong to the optimizer's tensors.
void read_optimizer_state(Job& job, const json& state) {
  job.optimizer().set_steps(state.at("optimizer").at("steps"));
  optim::LossScale scale = job.optimizer().loss_scale();
  const json& kept = state.at("loss_scale");
  if (scale.dynamic && kept.value("dynamic", true)) {  // older files lack the key and are always dynamic
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
  if (job.model.from_settings) shot.hf_config = models::hf::config_of(job.run.model);
  shot.state["model"] = {
      {"of_settings", job.model.from_settings},
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

checkpoint::DistributedSnapshot distributed_snapshot(Job& job, const json& more) {
  if (!job.model.from_settings)
    throw ConfigError(
        "--ckpt-format torch_dist must have a model built from settings; got one of a program's own builder, whose "
        "tensors have no names in Megatron; remove --ckpt-format [ckpt-format]");
  namespace mt = convert::megatron;
  const config::Model& model = job.run.model;
  checkpoint::DistributedSnapshot shot;
  const auto add = [&](const tensor::Parameter& parameter, std::int64_t begin, const at::Tensor& values,
                       bool owner, const std::string& prefix) {
    for (const Slice& ours : convert::state_slices(parameter.spec.name, parameter, begin, values, owner))
      append(shot.slices, mt::megatron_slices(parameter.spec, ours, model, prefix));
  };
  for (const tensor::Parameter* parameter : job.parameters()) {
    const data_parallel::LocalSlice here = job.buffers().local_slice(*parameter);
    add(*parameter, here.begin, here.values, here.is_saver, "");
  }
  const bool with_optimizer = !job.run.checkpoint.no_save_optim;
  if (with_optimizer)
    for (const optim::Segment& s : job.optimizer().segments()) {
      const bool owner = job.buffers().is_primary_replica(s.parameter->spec.param_group);
      for (std::size_t i = 0; i < s.states.size(); ++i)
        add(*s.parameter, s.begin, optim::unscaled(s.states[i], s.scales[i]).to(at::kFloat), owner,
            fmt::format("optimizer.state.{}.", mt::state_name(std::string(s.rule->states()[i]))));
      add(*s.parameter, s.begin, optim::unscaled(s.main, s.main_scale).to(at::kFloat), owner,
          "optimizer.state.param.");
    }
  shot.object_keys = mt::extra_state_keys(model);
  shot.object = mt::extra_state_pickle();
  json state = state_of(job);
  state.update(more);
  state["model"] = {{"of_settings", true}};
  shot.write_common = [run = job.run, state, with_optimizer,
                       steps = job.optimizer().steps()](const std::filesystem::path& folder) {
    mt::write_common_file(folder / "common.pt", run,
                          {.iteration = state.at("iteration"),
                           .consumed_samples = state.at("consumed_samples"),
                           .optimizer_steps = steps,
                           .has_optimizer = with_optimizer,
                           .lr_schedule = with_optimizer ? state.value("lr_schedule", json()) : json(),
                           .state = state});
  };
  shot.metadata = mt::kMetadataFile;
  return shot;
}

checkpoint::SaveResult save(Job& job, const std::filesystem::path& run_folder, const json& more,
                            const checkpoint::SaveOptions& options, const StepFiles& files) {
  progress().set_phase("checkpoint");
  checkpoint::SaveOptions with = options;
  if (job.run.checkpoint.save_retain_interval)
    with.retain_interval = *job.run.checkpoint.save_retain_interval;
  if (!with.on_point)
    with.on_point = [](std::string_view point) { fault::point(fmt::format("save-{}", point)); };
  if (job.run.checkpoint.saves_torch_dist())
    return checkpoint::save_distributed(run_folder, job.counters.iteration, distributed_snapshot(job, more),
                                        job.ranks.world(), with);
  return checkpoint::save(run_folder, job.counters.iteration, snapshot(job, more, files), job.ranks.world(),
                          with);
}

checkpoint::SaveResult export_hugging_face(Job& job, const std::filesystem::path& folder,
                                           const StepFiles& files) {
  checkpoint::Snapshot shot = snapshot(job, json::object(), files);
  shot.optimizer.clear();
  checkpoint::SaveOptions options;
  options.export_folder = folder;
  return checkpoint::save(folder.parent_path(), job.counters.iteration, shot, job.ranks.world(), options);
}

void restore(Job& job, const checkpoint::CheckpointReader& source, Restore what) {
  const at::NoGradGuard no_grad;
  const std::string dropped = dropped_states(source.state());
  const bool with_optimizer =
      what == Restore::kResume && !job.run.checkpoint.no_load_optim && dropped.empty();
  if (what == Restore::kResume && !dropped.empty() && job.ranks.world().rank() == 0)
    log::warning("{}: {}", source.folder().string(), dropped);
  require_same_builder(source, job.model.from_settings);
  require_model_tensors(source, job.run.model, /*logs_unread=*/job.ranks.world().rank() == 0);
  if (with_optimizer) require_same_kind(job, source);
  for (const Slice& slice : model_slices(job)) source.read_into(slice);
  if (with_optimizer) {
    read_optimizer_tensors(job, source);
    read_optimizer_state(job, source.state());
  } else {
    job.optimizer().adopt_parameters();
  }
  if (what == Restore::kResume) job.counters = resumed_counters(source.state(), job.run);
}

Counters counters_of(const json& state) {
  return {.iteration = state.at("iteration"),
          .consumed_samples = state.at("consumed_samples"),
          .skipped = state.at("skipped")};
}

Counters resumed_counters(const json& state, const config::Run& run) {
  const std::optional<std::int64_t>& iteration = run.checkpoint.override_ckpt_iteration;
  if (!iteration) return counters_of(state);
  return {.iteration = *iteration,
          .consumed_samples = config::batch_schedule(run.training).samples_after(0, *iteration),
          .skipped = 0};
}

void require_same_builder(const checkpoint::CheckpointReader& source, bool from_settings) {
  const bool saved =
      !source.state().is_object() || source.state().value(json::json_pointer("/model/of_settings"), true);
  if (saved == from_settings) return;
  std::vector<std::string> names = source.names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("optimizer."); });
  throw ConfigError(fmt::format(
      "{}: a checkpoint must be loaded by the model builder that saved it; got {} ({}, ...) to load into {}; {} "
      "[model-builder]",
      source.folder().string(),
      saved ? "a model built from settings" : "a model of a program's own builder, with its own tensor names",
      names.empty() ? "no tensors" : names.front(),
      saved ? "a model of a program's own builder" : "a model built from settings",
      saved ? "load it with `colonnade`, or use a new folder" : "load it with the program that saved it"));
}

}  // namespace colonnade::job
