// See writer.h.
#include "colonnade/convert/megatron/writer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/torch_file.h"
#include "colonnade/config/dtypes.h"
#include "colonnade/config/schema.h"
#include "colonnade/convert/megatron/source.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/megatron/names.h"
#include "colonnade/pickle/write.h"

namespace colonnade::convert::megatron {
namespace {

using checkpoint::Sizes;
using checkpoint::Slice;
using models::megatron::Rows;
using pickle::Writer;

/// Number of a layer in a stack, and the number of layers there, of a parameter of a layer.
struct LayerNumber {
  std::int64_t layer = 0, layers = 0;
};
std::optional<LayerNumber> layer_of(const std::string& name, const config::Model& model) {
  const bool encoder = name.starts_with("encoder.layers."), decoder = name.starts_with("decoder.layers.");
  if (!encoder && !decoder) return std::nullopt;
  constexpr std::size_t kPrefix = std::string_view("decoder.layers.").size();
  return LayerNumber{std::stoll(name.substr(kPrefix)),
                     encoder && model.encoder_num_layers > 0 ? model.encoder_num_layers : model.num_layers};
}

bool is_vocabulary_spec(const layout::ParamSpec& spec) {
  return std::ranges::any_of(spec.sharded_dims, [](const layout::ShardedDim& dim) {
    return std::ranges::any_of(dim.segments, [](const layout::DimSegment& s) { return s.pad_to > 0; });
  });
}

/// Rows of a vocabulary with Megatron's padding.
std::int64_t padded_vocabulary(const config::Model& model) {
  const std::int64_t divisor = std::max<std::int64_t>(model.make_vocab_size_divisible_by, 1);
  return (model.vocab_size + divisor - 1) / divisor * divisor;
}

/// A run of rows of a slice in Megatron's order.
struct Run {
  std::int64_t theirs = 0;
  at::Tensor data;
};

/// The rows of a slice in Megatron's order, joined where they are consecutive there.
std::vector<Run> runs_of(const layout::ParamSpec& spec, const Slice& ours, const config::Model& model) {
  const auto dim = static_cast<std::size_t>(models::megatron::row_dim(spec));
  const auto d = static_cast<std::int64_t>(dim);
  const std::int64_t begin = ours.offset[dim], end = begin + ours.data.size(d);
  std::vector<Run> rows;
  for (const Rows& run : models::megatron::row_order(spec, model)) {
    const std::int64_t first = std::max(begin, run.ours), last = std::min(end, run.ours + run.count);
    if (first < last)
      rows.push_back({run.theirs + first - run.ours, ours.data.narrow(d, first - begin, last - first)});
  }
  std::ranges::sort(rows, {}, &Run::theirs);
  std::vector<Run> joined;
  for (std::size_t i = 0; i < rows.size();) {
    std::vector<at::Tensor> parts{rows[i].data};
    std::int64_t next = rows[i].theirs + rows[i].data.size(d);
    std::size_t j = i + 1;
    for (; j < rows.size() && rows[j].theirs == next; ++j) {
      parts.push_back(rows[j].data);
      next += rows[j].data.size(d);
    }
    joined.push_back({rows[i].theirs, parts.size() == 1 ? parts[0] : at::cat(parts, d)});
    i = j;
  }
  return joined;
}

/// Whether Transformer Engine has a module with an extra state under this name.
bool has_extra_state(const std::string& module) {
  const std::string last = module.substr(module.rfind('.') + 1);
  return last.starts_with("linear_") || last.find("norm") != std::string::npos || last == "eh_proj";
}

/// "a.b.linear_fc1.weight" -> "a.b.linear_fc1".
std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// ---- common.pt

void write_text_value(Writer& w, const config::Setting& setting, const std::string& word) {
  if (setting.kind == config::Kind::kSwitch) return w.boolean(word == "true");
  if (setting.kind == config::Kind::kInteger) return w.integer(std::stoll(word));
  if (setting.kind == config::Kind::kNumber) return w.real(std::stod(word));
  w.text(word);
}

/// Settings that name files, folders and people.
bool is_private(const config::Setting& setting) {
  const std::string& key = setting.key;
  return key.find("path") != std::string::npos || key.ends_with("_dir") || key.ends_with("_file") ||
         key.starts_with("wandb") || key == "save" || key == "load" || key == "pretrained_checkpoint" ||
         key == "tokenizer_model" || key == "config" || key == "yaml_cfg" || key == "tensorboard_dir" ||
         key == "hostname" || key.starts_with("master_");
}

void write_setting(Writer& w, const config::Run& run, const config::Setting& setting) {
  const auto words = setting.get(run);
  w.text(setting.key);
  if (!words || (words->empty() && setting.nullable)) return w.none();
  if (setting.kind != config::Kind::kList)
    return write_text_value(w, setting, words->empty() ? "" : words->front());
  w.begin_list();
  for (const std::string& word : *words) w.text(word);
  w.end_list();
}

/// args, as far as Megatron reads them from a checkpoint. Source: megatron/training/checkpointing.py
/// (check_checkpoint_args, load_args_from_checkpoint, load_checkpoint).
void write_args(Writer& w, const config::Run& run, const CommonState& state) {
  std::set<std::string> written;
  w.global("argparse", "Namespace");
  w.begin_tuple(), w.end_tuple(), w.new_object();
  w.begin_dict();
  for (const config::Setting& setting : config::schema()) {
    // Settings that Megatron lacks are carried where they describe the model, so that they come back.
    if (is_private(setting) || (setting.colonnade_only && !setting.defines_model)) continue;
    if (!setting.shorthand_key.empty()) {
      w.text(setting.key);
      w.boolean(config::text_of(run, config::setting(setting.shorthand_key)) == setting.shorthand_word);
      written.insert(setting.key);
    } else if (setting.cls == config::Class::kImplemented && setting.get != nullptr) {
      write_setting(w, run, setting);
      written.insert(setting.key);
    }
  }
  const config::Model& m = run.model;
  const auto flag = [&](const char* key, bool value) { w.text(key), w.boolean(value); };
  const auto integer = [&](const char* key, std::int64_t value) { w.text(key), w.integer(value); };
  // Later values of a key win. Another layout may have saved: Megatron only compares sizes of model
  // parallelism.
  for (const char* key : {"tensor_model_parallel_size", "pipeline_model_parallel_size", "world_size",
                          "data_parallel_size", "context_parallel_size", "expert_model_parallel_size"})
    integer(key, 1);
  for (const char* key : {"virtual_pipeline_model_parallel_size", "encoder_num_layers", "decoder_num_layers",
                          "moe_mlp_glu_interleave_size", "pipeline_model_parallel_layout", "vocab_file",
                          "expert_tensor_parallel_size"})
    w.text(key), w.none();
  integer("iteration", state.iteration);
  integer("consumed_train_samples", state.consumed_samples);
  integer("skipped_train_samples", 0);
  integer("consumed_valid_samples", 0);
  integer("padded_vocab_size", padded_vocabulary(m));
  integer("num_query_groups", m.num_query_groups);
  flag("group_query_attention", m.num_query_groups < m.num_attention_heads);
  flag("add_position_embedding", m.position_embedding == config::PositionEmbedding::kLearnedAbsolute);
  flag("use_rotary_position_embeddings", m.has_rotary());
  flag("no_save_rng", true);
  flag("no_save_optim", !state.has_optimizer);
  flag("ckpt_fully_parallel_save", true);
  flag("async_save", false);
  flag("use_dist_ckpt", true);
  flag("use_distributed_optimizer", state.has_optimizer);
  flag("dist_ckpt_optim_fully_reshardable", true);
  w.text("async_strategy"), w.text("mcore");
  w.text("ckpt_format"), w.text("torch_dist");
  w.text("transformer_impl"), w.text("transformer_engine");
  w.text("params_dtype");
  w.global("torch", checkpoint::torch_dtype_name(at::ScalarType(
                        config::dtypes_of(run).parameter == config::Dtype::kBfloat16  ? at::kBFloat16
                        : config::dtypes_of(run).parameter == config::Dtype::kFloat16 ? at::kHalf
                                                                                      : at::kFloat)));
  w.end_dict();
  w.build();
}

struct Group {
  bool has_decay = true, experts = false;
};

void write_group(Writer& w, const config::Run& run, const CommonState& state, const Group& group) {
  const auto flag = [&](const char* key, bool value) { w.text(key), w.boolean(value); };
  const auto real = [&](const char* key, double value) { w.text(key), w.real(value); };
  const double max_lr =
      state.lr_schedule.is_object() ? state.lr_schedule.value("max_lr", run.schedule.lr) : run.schedule.lr;
  const double min_lr = state.lr_schedule.is_object() ? state.lr_schedule.value("min_lr", run.schedule.min_lr)
                                                      : run.schedule.min_lr;
  w.begin_dict();
  flag("is_expert_parallel", group.experts);
  flag("default_config", true);
  real("wd_mult", group.has_decay ? 1.0 : 0.0);
  real("lr_mult", 1.0);
  flag("is_decoupled_lr", false);
  real("max_lr", max_lr);
  real("min_lr", min_lr);
  real("lr", max_lr);
  w.text("betas"), w.begin_tuple(), w.real(run.optimizer.adam_beta1), w.real(run.optimizer.adam_beta2),
      w.end_tuple();
  real("eps", run.optimizer.adam_eps);
  real("weight_decay", group.has_decay ? run.optimizer.weight_decay : 0.0);
  for (const char* key : {"amsgrad", "maximize", "capturable", "differentiable"}) flag(key, false);
  for (const char* key : {"foreach", "fused"}) w.text(key), w.none();
  flag("decoupled_weight_decay", true);
  real("step", static_cast<double>(state.optimizer_steps));
  w.end_dict();
}

/// {optimizer: {param_groups}, param_state_sharding_type}.
void write_optimizer(Writer& w, const config::Run& run, const CommonState& state,
                     const std::vector<Group>& groups) {
  w.begin_dict();
  w.text("optimizer"), w.begin_dict(), w.text("param_groups"), w.begin_list();
  for (const Group& group : groups) write_group(w, run, state, group);
  w.end_list(), w.end_dict();
  w.text("param_state_sharding_type"), w.text("fully_reshardable");
  w.end_dict();
}

void write_json(Writer& w, const nlohmann::json& value) {
  if (value.is_number_integer()) return w.integer(value.get<std::int64_t>());
  if (value.is_number()) return w.real(value.get<double>());
  if (value.is_boolean()) return w.boolean(value.get<bool>());
  if (value.is_string()) return w.text(value.get<std::string>());
  w.none();
}

/// Megatron's keys of the schedule; it counts in samples, as integers.
void write_schedule(Writer& w, const nlohmann::json& schedule) {
  w.begin_dict();
  for (const char* key : {"max_lr", "lr_warmup_steps", "num_steps", "lr_decay_style", "lr_decay_steps",
                          "min_lr", "start_wd", "end_wd", "wd_incr_style", "wd_incr_steps"}) {
    w.text(key);
    const nlohmann::json value = schedule.value(key, nlohmann::json());
    if (std::string_view(key).ends_with("_steps") && value.is_number())
      w.integer(static_cast<std::int64_t>(value.get<double>()));
    else
      write_json(w, value);
  }
  w.end_dict();
}

}  // namespace

std::vector<Slice> megatron_slices(const layout::ParamSpec& spec, const Slice& ours,
                                   const config::Model& model, const std::string& prefix) {
  const bool stacked = models::megatron::has_stacked_layers(model);
  const std::string name = prefix + models::megatron::written_name(spec, model, stacked);
  const auto layer = stacked ? layer_of(spec.name, model) : std::nullopt;
  const auto dim = static_cast<std::size_t>(models::megatron::row_dim(spec));
  const bool padded = is_vocabulary_spec(spec);
  std::vector<Slice> slices;
  const auto add = [&](Sizes offset, at::Tensor data) {
    Slice slice{.name = name,
                .global_shape = spec.shape,
                .offset = std::move(offset),
                .data = std::move(data),
                .owner = ours.owner};
    if (padded) slice.global_shape[0] = padded_vocabulary(model);
    if (layer) {
      slice.global_shape.insert(slice.global_shape.begin(), layer->layers);
      slice.offset.insert(slice.offset.begin(), layer->layer);
      slice.data = slice.data.unsqueeze(0);
    }
    slices.push_back(std::move(slice));
  };
  if (spec.shape.empty()) {
    add({}, ours.data);
    return slices;
  }
  for (Run& run : runs_of(spec, ours, model)) {
    Sizes offset = ours.offset;
    offset[dim] = run.theirs;
    add(std::move(offset), std::move(run.data));
  }
  const std::int64_t padding = padded ? padded_vocabulary(model) - spec.shape[0] : 0;
  const bool has_last_row = ours.offset[0] + ours.data.size(0) == spec.shape[0];
  if (padding > 0 && has_last_row) {
    Sizes shape = ours.data.sizes().vec(), offset = ours.offset;
    shape[0] = padding;
    offset[0] = spec.shape[0];
    add(std::move(offset), at::zeros(shape, ours.data.options()));
  }
  return slices;
}

std::string state_name(const std::string& ours) {
  if (ours == "fp32_param") return "param";
  return ours == "exp_avg" || ours == "exp_avg_sq" ? ours : "";
}

std::vector<std::string> extra_state_keys(const config::Model& model) {
  const bool stacked = models::megatron::has_stacked_layers(model);
  std::set<std::string> keys;
  for (const layout::ParamSpec& spec : layout::model_params(model, {})) {
    const std::string module = module_of(models::megatron::written_name(spec, model, stacked));
    if (!has_extra_state(module)) continue;
    const auto layer = stacked ? layer_of(spec.name, model) : std::nullopt;
    const bool experts = module.find(".experts.experts.") != std::string::npos;
    for (std::int64_t e = 0; e < (experts ? model.moe.num_experts : 1); ++e) {
      std::vector<std::int64_t> index, size;
      if (layer) index.push_back(layer->layer), size.push_back(layer->layers);
      if (experts) index.push_back(e), size.push_back(model.moe.num_experts);
      if (index.empty()) index.push_back(0), size.push_back(1);
      keys.insert(
          fmt::format("{}._extra_state/shard_{}_{}", module, fmt::join(index, "."), fmt::join(size, ".")));
    }
  }
  return {keys.begin(), keys.end()};
}

std::string extra_state_pickle() {
  Writer w;
  w.begin_list(), w.none(), w.end_list();
  return std::move(w).finish();
}

void write_common_file(const std::filesystem::path& path, const config::Run& run, const CommonState& state) {
  Writer w;
  w.begin_dict();
  w.text("args"), write_args(w, run, state);
  w.text("checkpoint_version"), w.real(3.0);
  w.text("iteration"), w.integer(state.iteration);
  w.text("num_floating_point_operations_so_far"), w.real(0);
  w.text("content_metadata"), w.begin_dict();
  if (state.has_optimizer) {
    w.text("distrib_optim_sharding_type"), w.text("fully_reshardable");
    w.text("distrib_optim_fully_reshardable_mem_efficient"), w.boolean(false);
  }
  w.text("singleton_local_shards"), w.boolean(false);
  w.text("chained_optim_avoid_prefix"), w.boolean(true);
  w.end_dict();
  if (state.has_optimizer) {
    w.text("optimizer");
    if (run.model.moe.num_experts > 0) {
      w.begin_dict();
      w.integer(0), write_optimizer(w, run, state, {{true, false}, {false, false}});
      w.integer(1), write_optimizer(w, run, state, {{true, true}});
      w.end_dict();
    } else {
      write_optimizer(w, run, state, {{true, false}, {false, false}});
    }
  }
  if (state.lr_schedule.is_object()) w.text("opt_param_scheduler"), write_schedule(w, state.lr_schedule);
  if (state.state.is_object())
    w.text(kStateKey), w.text(state.state.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  w.end_dict();
  checkpoint::SegmentWriter file(path);
  file.add_object("common", std::move(w).finish());
  (void)file.finish();
}

}  // namespace colonnade::convert::megatron
