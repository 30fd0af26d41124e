// See reader.h.
#include "colonnade/convert/megatron/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/convert/megatron/legacy.h"
#include "colonnade/convert/megatron/settings.h"
#include "colonnade/convert/megatron/torch_dist.h"
#include "colonnade/convert/slices.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/names.h"

namespace colonnade::convert::megatron {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::ComposedTensor;
using checkpoint::Part;
using checkpoint::Sizes;
using checkpoint::Slice;
using nlohmann::json;

/// Whether rows beyond the vocabulary are padding.
bool is_vocabulary(const layout::ParamSpec& spec) {
  return std::ranges::any_of(spec.sharded_dims, [](const layout::ShardedDim& dim) {
    return std::ranges::any_of(dim.segments, [](const layout::DimSegment& s) { return s.pad_to > 0; });
  });
}

/// "gpt", "t5" or "bert", by the stacks that the checkpoint has.
std::string model_type_of(const Tensors& tensors) {
  const auto has = [&](const std::string& prefix) {
    const auto found = tensors.lower_bound(prefix);
    return found != tensors.end() && found->first.starts_with(prefix);
  };
  if (!has("encoder.layers.")) return "gpt";
  return has("decoder.layers.") ? "t5" : "bert";
}

/// The model that the settings describe.
config::Model model_of(const std::map<std::string, std::string>& settings) {
  config::Run run;
  config::set(run, "model", settings.at("model"));
  for (const auto& [key, value] : settings)
    if (key != "model" && (config::setting(key).defines_model || key == "vocab_size"))
      config::set(run, key, value);
  run.parallel = {};
  config::derive(run);
  return run.model;
}

/// Presents the tensors of a Megatron checkpoint as ours.
class Presenter {
 public:
  Presenter(const FoundFolder& found, Source source) : found_(found), source_(std::move(source)) {}

  CheckpointReader present(const OpenOptions& options) {
    if (!found_.description.empty()) source_.args.update(args_of_yaml(found_.description));
    settings_ = settings_of(source_.args, source_.folder.string());
    settings_["model"] = model_type_of(source_.model);
    // On by default, and set for models without an encoder too.
    if (settings_["model"] != "bert") settings_.erase("bert_binary_head");
    if (settings_["model"] != "t5") settings_.erase("encoder_num_layers");
    const bool is_described = describe_model(source_.args);
    if (!is_described && options.model == nullptr)
      return CheckpointReader::of({source_.folder, found_.iteration, {}, state(), nullptr});
    if (is_described) {
      // What Colonnade wrote has a vocabulary of its own, without the rows that only Megatron needs.
      set_vocabulary(options.cuts_vocabulary || source_.common.contains(kStateKey));
      add_sizes_of_tensors();
    }
    model_ = is_described ? model_of(settings_) : *options.model;
    naming_ = models::hf::naming_of(model_);
    for (const layout::ParamSpec& spec : layout::model_params(model_, {})) add_param(spec);
    require_all_used();
    require_covered();
    for (const std::string& note : source_.notes) log::info("{}: {}", source_.folder.string(), note);
    return CheckpointReader::of(
        {source_.folder, found_.iteration, std::move(tensors_), state(), models::hf::config_of(model_)});
  }

 private:
  /// The vocabulary has the rows of the stored table, or without `cuts` those of the args.
  void set_vocabulary(bool cuts) {
    const Sizes* table = shape_of("embedding.word_embeddings.weight");
    if (table == nullptr) return;
    const std::int64_t real = integer_arg(source_.args, "vocab_size", 0);
    if (real > 0 && real < (*table)[0]) unpadded_vocabulary_ = real;
    settings_["vocab_size"] =
        std::to_string(cuts && unpadded_vocabulary_ ? *unpadded_vocabulary_ : (*table)[0]);
  }

  /// Sets a model setting to what the tensors show, with a note where the args say something else.
  void set_by_tensors(const std::string& key, const std::string& value) {
    std::string& was = settings_[key];
    if (was == value) return;
    if (!was.empty())
      source_.notes.push_back(fmt::format(
          "{} is {} by the shapes of the tensors, and {} in the args; {} is used", key, value, was, value));
    was = value;
  }
  [[nodiscard]] const Sizes* shape_of(const std::string& name) const {
    const auto found = source_.model.find(name);
    return found == source_.model.end() || found->second.shape.empty() ? nullptr : &found->second.shape;
  }

  /// Kind and sizes of latent attention, and the number of MTP layers. Args of runs that were started by
  /// another program than pretrain_gpt.py may keep their defaults.
  void add_sizes_of_tensors() {
    std::int64_t mtp = 0;
    while (shape_of(fmt::format("mtp.layers.{}.eh_proj.weight", mtp)) != nullptr) ++mtp;
    if (mtp > 0) set_by_tensors("mtp_num_layers", std::to_string(mtp));
    const std::string attention = "decoder.layers.0.self_attention.";
    const std::int64_t heads = integer_arg(source_.args, "num_attention_heads", 1);
    const Sizes* down = shape_of(attention + "linear_kv_down_proj.weight");
    const Sizes* up = shape_of(attention + "linear_kv_up_proj.weight");
    const Sizes* query = shape_of(attention + "linear_q_up_proj.weight");
    if (query == nullptr) query = shape_of(attention + "linear_q_proj.weight");
    if (down == nullptr || up == nullptr || query == nullptr || up->size() != 2 || heads < 1) return;
    const std::int64_t latent = (*up)[1], rotary = (*down)[0] - latent, head = (*query)[0] / heads - rotary;
    set_by_tensors("multi_latent_attention", "true");
    set_by_tensors("kv_lora_rank", std::to_string(latent));
    set_by_tensors("qk_pos_emb_head_dim", std::to_string(rotary));
    set_by_tensors("qk_head_dim", std::to_string(head));
    set_by_tensors("v_head_dim", std::to_string((*up)[0] / heads - head));
    if (const Sizes* compressed = shape_of(attention + "linear_q_down_proj.weight"))
      set_by_tensors("q_lora_rank", std::to_string((*compressed)[0]));
  }

  [[noreturn]] void fail(std::string_view text) const {
    throw DataError(fmt::format("{}: {}", source_.folder.string(), text));
  }

  void add_param(const layout::ParamSpec& spec) {
    const std::vector<std::string> names = models::megatron::names_of(spec);
    const auto name =
        std::ranges::find_if(names, [&](const std::string& each) { return source_.model.contains(each); });
    if (name == names.end())
      fail(fmt::format(
          "a checkpoint must hold every tensor of the model that its args describe; got none of {}; copy "
          "the folder again, or check the model settings",
          fmt::join(names, " or ")));
    const ComposedTensor& stored = source_.model.at(*name);
    used_.insert(*name);
    require_shape(spec, *name, stored);
    for (const Slice& ours : slices_of(spec, stored))
      for (Slice& theirs : box_slices(spec, ours, naming_)) add_slice(std::move(theirs), stored.dtype);
    for (const auto& [state, tensors] : source_.optimizer) {
      const auto of_param = tensors.find(*name);
      if (of_param == tensors.end()) {
        if (spec.trained)
          fail(fmt::format("the optimizer must have a {} of '{}'; got none; add --no-load-optim", state,
                           *name));
        continue;
      }
      require_shape(spec, *name, of_param->second);
      for (Slice& slice : slices_of(spec, of_param->second)) {
        slice.name = fmt::format("optimizer.{}.{}", state == "param" ? "fp32_param" : state, spec.name);
        add_slice(std::move(slice), of_param->second.dtype);
      }
    }
  }

  void require_shape(const layout::ParamSpec& spec, const std::string& name,
                     const ComposedTensor& stored) const {
    const bool padded = is_vocabulary(spec) && stored.shape.size() == spec.shape.size() &&
                        stored.shape.at(0) >= spec.shape[0] &&
                        std::equal(stored.shape.begin() + 1, stored.shape.end(), spec.shape.begin() + 1);
    if (stored.shape != spec.shape && !padded)
      fail(fmt::format(
          "'{}' must have the shape of the model that the args describe, [{}]; got [{}]; check the model "
          "settings",
          name, fmt::join(spec.shape, ", "), fmt::join(stored.shape, ", ")));
  }

  /// The parts of a stored tensor as slices of ours: in our row order, without padding.
  std::vector<Slice> slices_of(const layout::ParamSpec& spec, const ComposedTensor& stored) const {
    std::vector<Slice> slices;
    const auto dim = static_cast<std::size_t>(models::megatron::row_dim(spec));
    const auto d = static_cast<std::int64_t>(dim);
    const auto order = models::megatron::row_order(spec, model_);
    for (const Part& part : stored.parts) {
      if (spec.shape.empty()) {
        slices.push_back({.name = spec.name, .global_shape = {}, .offset = {}, .data = part.data});
        continue;
      }
      const std::int64_t begin = part.box.offset[dim], end = begin + part.box.shape[dim];
      for (const models::megatron::Rows& rows : order) {
        const std::int64_t first = std::max(begin, rows.theirs),
                           last = std::min(end, rows.theirs + rows.count);
        if (first >= last) continue;
        Slice slice{.name = spec.name,
                    .global_shape = spec.shape,
                    .offset = part.box.offset,
                    .data = part.data.narrow(d, first - begin, last - first)};
        slice.offset[dim] = rows.ours + first - rows.theirs;
        slices.push_back(std::move(slice));
      }
    }
    return slices;
  }

  void add_slice(Slice slice, at::ScalarType dtype) {
    ComposedTensor& tensor = tensors_[slice.name];
    tensor.dtype = dtype;
    tensor.shape = slice.global_shape;
    const Sizes shape = slice.data.sizes().vec();
    tensor.parts.push_back({{std::move(slice.offset), shape}, std::move(slice.data)});
  }

  /// Whether a tensor may be left unused: extra states, and a tied output layer that repeats the embeddings.
  bool is_ignored(const std::string& name) const {
    return name.find("_extra_state") != std::string::npos ||
           (!model_.untie_embeddings_and_output_weights && name.ends_with("output_layer.weight")) ||
           name.ends_with("rotary_pos_emb.inv_freq") || name.ends_with("local_tokens_per_expert");
  }

  void require_all_used() const {
    std::vector<std::string> unknown;
    for (const auto& [name, tensor] : source_.model)
      if (!used_.contains(name) && !is_ignored(name)) unknown.push_back(name);
    if (!unknown.empty())
      fail(fmt::format(
          "every tensor must be one of the model that the args describe; got {} others: {}; train it with "
          "Megatron, or check the model settings",
          unknown.size(), checkpoint::first_names(unknown)));
  }

  void require_covered() const {
    for (const auto& [name, tensor] : tensors_) {
      std::vector<checkpoint::Box> boxes;
      for (const Part& part : tensor.parts) boxes.push_back(part.box);
      if (const auto problem = checkpoint::coverage_problem(tensor.shape, boxes))
        fail(fmt::format("'{}' must be filled once; got: {}; copy the folder again", name, *problem));
    }
  }

  /// Steps of the optimizer, for its bias correction.
  std::int64_t optimizer_steps() const {
    if (source_.param_groups.is_array())
      for (const json& group : source_.param_groups)
        if (group.is_object() && group.contains("step") && group.at("step").is_number())
          return static_cast<std::int64_t>(group.at("step").get<double>());
    return found_.iteration;
  }

  /// Where data continue. A checkpoint of a later step that does not say it is an error when a run resumes:
  /// data would start over in silence.
  std::int64_t consumed_samples(std::int64_t iteration) const {
    if (found_.consumed_samples) return *found_.consumed_samples;
    return integer_arg(source_.args, "consumed_train_samples",
                       iteration * integer_arg(source_.args, "global_batch_size", 0));
  }

  /// The state that Colonnade wrote, or one made of the args.
  json state() const {
    const json own = source_.common.value(kStateKey, json());
    if (own.is_string()) {
      json state = json::parse(own.get<std::string>(), nullptr, /*allow_exceptions=*/false);
      if (state.is_object() && state.contains("settings") && state.contains("iteration")) {
        state["format"] = "torch_dist";
        return state;
      }
    }
    return state_of_args();
  }

  json state_of_args() const {
    const std::int64_t iteration = source_.common.value("iteration", json()).is_number_integer()
                                       ? source_.common.at("iteration").get<std::int64_t>()
                                       : found_.iteration;
    json state = {
        {"iteration", iteration},
        {"consumed_samples", consumed_samples(iteration)},
        {"skipped", 0},
        {"optimizer", {{"kind", text_arg(source_.args, "optimizer", "adam")}, {"steps", optimizer_steps()}}},
        {"loss_scale",
         {{"scale", flag_arg(source_.args, "fp16", false)
                        ? number_arg(source_.args, "initial_loss_scale", 4294967296.0)
                        : 1.0},
          {"growth", 0},
          {"hysteresis", integer_arg(source_.args, "hysteresis", 2)},
          {"dynamic", flag_arg(source_.args, "fp16", false)}}},
        {"settings", settings_},
        {"model", {{"of_settings", true}}},
        {"format", found_.format == Format::kTorchDist ? "torch_dist" : "torch"}};
    if (!source_.dropped.empty()) state["optimizer"]["dropped"] = source_.dropped;
    if (unpadded_vocabulary_) state["model"]["unpadded_vocab_size"] = *unpadded_vocabulary_;
    const json schedule = source_.common.value("opt_param_scheduler", json());
    if (schedule.is_object()) state["lr_schedule"] = schedule;
    return state;
  }

  const FoundFolder& found_;
  Source source_;
  std::map<std::string, std::string> settings_;
  config::Model model_;
  std::optional<models::hf::Naming> naming_;
  std::optional<std::int64_t> unpadded_vocabulary_;  ///< where the stored table has more rows
  std::map<std::string, ComposedTensor> tensors_;
  std::set<std::string> used_;
};

}  // namespace

CheckpointReader open(const FoundFolder& found, const OpenOptions& options) {
  Source source =
      found.format == Format::kTorchDist ? open_torch_dist(found.folder) : open_legacy(found.folder);
  return Presenter(found, std::move(source)).present(options);
}

}  // namespace colonnade::convert::megatron
