// Tables of renamed fields and of fields without effect, and settings derived from several fields.
#include "colonnade/config/nested_keys.h"

#include <algorithm>
#include <sstream>

#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

struct Renamed {
  const char* field;
  const char* setting;
};

constexpr Renamed kRenamed[] = {
    {"activation_func", "activation"},
    {"num_moe_experts", "num_experts"},
    {"num_layers_in_first_pipeline_stage", "decoder_first_pipeline_num_layers"},
    {"num_layers_in_last_pipeline_stage", "decoder_last_pipeline_num_layers"},
    {"original_max_position_embeddings", "yarn_original_max_position_embeddings"},
    {"beta_fast", "yarn_beta_fast"},
    {"beta_slow", "yarn_beta_slow"},
    {"use_te_rng_tracker", "te_rng_tracker"},
    {"fp8_param", "fp8_param_gather"},
    {"fp4_param", "fp4_param_gather"},
};

/// Fields translated by finish() or take().
constexpr const char* kGated = "gated_linear_unit";
constexpr const char* kFused = "bias_activation_fusion";
constexpr const char* kFunction = "activation_func";
constexpr const char* kInit = "init_method";

enum class Others { kNotSupported, kNoted };

/// Fields without effect at null and at `value`, Megatron's default. Other values change no result (kNoted)
/// or request an unsupported feature.
struct NoEffect {
  const char* fields;  ///< space-separated
  const char* value;
  Others others;
  const char* meaning;
};

constexpr const char* kCallback = "it holds a Python object, which YAML cannot express";
constexpr const char* kOverlap = "Transformer Engine's communication overlap changes no result";
constexpr const char* kOffload = "activations and weights are not offloaded";
constexpr const char* kGraphs = "there are no CUDA graphs";
constexpr const char* kLowPrecision = "there is no FP8";

constexpr NoEffect kNoEffect[] = {
    {"timers finalize_model_grads_func grad_scale_func moe_grad_scale_func mtp_grad_scale_func no_sync_func "
     "grad_sync_func param_sync_func experimental_attention_variant_loss_scale_func quant_recipe "
     "_cpu_offloading_context",
     "null", Others::kNotSupported, kCallback},
    {"output_layer_init_method", "null", Others::kNotSupported,
     "output layers are initialized with std init_method_std / sqrt(2 * num_layers)"},
    {"embedding_init_method", "null", Others::kNotSupported,
     "embeddings are initialized with std embedding_init_method_std"},
    {"batch_p2p_comm batch_p2p_sync", "true", Others::kNoted,
     "grouping of pipeline messages changes no result"},
    {"deallocate_pipeline_outputs", "false", Others::kNoted, "freeing stage outputs early changes no result"},
    {"pipeline_dtype", "null", Others::kNoted,
     "pipeline messages have the dtype of the parameters, as in Megatron's YAML reader"},
    {"enable_autocast", "false", Others::kNotSupported, "--bf16 and --fp16 set the precision"},
    {"autocast_dtype", "null", Others::kNoted, "there is no autocast; --bf16 and --fp16 set the precision"},
    {"variable_seq_lengths", "false", Others::kNoted, "pipeline stages accept sequences of any length"},
    {"num_microbatches_with_partial_activation_checkpoints", "null", Others::kNotSupported,
     "recomputation is the same in every micro-batch"},
    {"memory_efficient_layer_norm", "false", Others::kNoted, "there is one norm kernel per device"},
    {"fused_single_qkv_rope", "false", Others::kNoted, "kernel fusion is chosen by device"},
    {"softmax_scale", "null", Others::kNotSupported, "query_pre_attn_scalar sets the softmax scale"},
    {"activation_func_fp8_input_store fp8_dot_product_attention fp8_multi_head_attention use_kitchen",
     "false", Others::kNotSupported, kLowPrecision},
    {"tp_only_amax_red disable_parameter_transpose_cache", "false", Others::kNoted, kLowPrecision},
    {"tp_comm_atomic_ag tp_comm_atomic_rs tp_comm_overlap_disable_qkv tp_comm_overlap_disable_fc1", "false",
     Others::kNoted, kOverlap},
    {"cpu_offloading", "false", Others::kNotSupported, kOffload},
    {"cpu_offloading_weights cpu_offloading_double_buffering", "false", Others::kNoted, kOffload},
    {"cpu_offloading_activations", "true", Others::kNoted, kOffload},
    {"cuda_graph_use_single_mempool", "true", Others::kNoted, kGraphs},
    {"cuda_graph_retain_backward_graph", "false", Others::kNoted, kGraphs},
    {"cuda_graph_modules", "full", Others::kNotSupported, kGraphs},
    {"gtp_weight_remat_size expert_gtp_weight_remat_size", "1", Others::kNotSupported,
     "tensor_model_parallel_size and expert_tensor_parallel_size shard the weights"},
    {"heterogeneous_block_specs hetereogenous_dist_checkpoint", "false", Others::kNotSupported,
     "all layers have one configuration"},
    {"inference_sampling_seed", "42", Others::kNoted, "training generates no text"},
    {"use_inference_optimized_layers", "false", Others::kNotSupported, "layers have one implementation"},
    {"moe_router_topk_limited_devices", "null", Others::kNotSupported,
     "moe_router_num_groups and moe_router_group_topk limit the choice of experts"},
    {"moe_token_dropping", "false", Others::kNotSupported, "moe_expert_capacity_factor drops tokens"},
    {"moe_extended_tp", "false", Others::kNotSupported,
     "expert_tensor_parallel_size is the tensor-parallel size of experts"},
    {"moe_use_legacy_grouped_gemm", "false", Others::kNoted, "the experts of a rank are one grouped GEMM"},
    {"bert_binary_head", "true", Others::kNotSupported, "bert has the binary head by default, gpt never"},
    // Arguments that Megatron removed in 2024 or 2025 but that its example files still contain.
    {"async_tensor_model_parallel_allreduce", "true", Others::kNoted,
     "asynchronous reduction of input gradients changes no result"},
    {"scatter_gather_tensors_in_pipeline delay_grad_reduce", "true", Others::kNoted,
     "splitting of messages and the time of gradient reduction change no result"},
    {"delay_param_gather", "false", Others::kNoted, "the time of the parameter all-gather changes no result"},
    {"standalone_embedding_stage", "false", Others::kNotSupported,
     "pipeline_model_parallel_layout can give the embedding its own stage"},
    {"pipeline_model_parallel_split_rank", "null", Others::kNotSupported,
     "pipeline_model_parallel_layout places the encoder's layers"},
    {"encoder_tensor_model_parallel_size encoder_pipeline_model_parallel_size", "0", Others::kNotSupported,
     "pipeline_model_parallel_layout places the encoder's layers"},
    {"use_legacy_models", "false", Others::kNotSupported, "there is one implementation of each model"},
    {"retriever_seq_length", "256", Others::kNoted, "there are no retrieval models"},
    {"log_batch_size_to_tensorboard", "false", Others::kNoted, "TensorBoard always has the batch size"},
    {"log_learning_rate_to_tensorboard", "true", Others::kNoted, "TensorBoard always has the learning rate"},
};

bool is_boolean(std::string_view word) { return word == "true" || word == "false"; }

Words split_at_blanks(const std::string& all) {
  std::istringstream text(all);
  Words words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

const std::map<std::string, const NoEffect*>& no_effect_index() {
  static const std::map<std::string, const NoEffect*> kIndex = [] {
    std::map<std::string, const NoEffect*> index;
    for (const NoEffect& row : kNoEffect)
      for (const std::string& name : split_at_blanks(row.fields)) index.emplace(name, &row);
    return index;
  }();
  return kIndex;
}

const NoEffect* no_effect(const std::string& field) {
  const auto found = no_effect_index().find(field);
  return found == no_effect_index().end() ? nullptr : found->second;
}

bool is_switch(std::string_view field) { return field == kGated || field == kFused; }

std::string joined(const Words& words) { return fmt::format("{}", fmt::join(words, " ")); }

/// Whether a word equals a value as text or as a number.
bool is_value(const std::string& word, const char* value) {
  double a = 0, b = 0;
  if (read_number(word, a) && read_number(value, b)) return a == b;
  return word == value;
}

/// Value of --activation for a config class's fields; "" if unsupported.
std::string activation_of(const std::string& function, bool gated, bool fused_without_bias) {
  if (function == "swiglu") return "swiglu";  // Megatron's reader enables the gate
  if (function == "squaredrelu") return gated ? "" : "squared-relu";
  if (function != "gelu") return "";
  if (!gated) return "gelu";                           // the reader disables fusion, so this is the erf form
  return fused_without_bias ? "geglu-tanh" : "geglu";  // the fused kernel uses the tanh form
}

}  // namespace

bool is_section(std::string_view key) { return key == "language_model" || key == "model_parallel"; }

std::string_view setting_name(const std::string& key) {
  const auto* const found =
      std::ranges::find_if(kRenamed, [&](const Renamed& row) { return key == row.field; });
  return found == std::end(kRenamed) ? std::string_view(key) : found->setting;
}

Words setting_words(const Setting& setting, const std::string& word) {
  if (setting.key == "data_path") return split_at_blanks(word);
  if (setting.key != "params_dtype") return {word};
  const std::string name = word.starts_with("torch.") ? word.substr(6) : word;
  if (name == "float32" || name == "float") return {"fp32"};
  if (name == "bfloat16") return {"bf16"};
  if (name == "float16" || name == "half") return {"fp16"};
  return {word};
}

std::vector<std::string> field_names() {
  std::vector<std::string> names{kGated, kFused, kInit};
  for (const Renamed& row : kRenamed) names.emplace_back(row.field);
  for (const auto& [name, row] : no_effect_index())
    if (!find(name)) names.push_back(name);
  return names;
}

std::optional<Kind> field_kind(const std::string& key) {
  if (is_switch(key)) return Kind::kSwitch;
  if (key == kFunction || key == kInit) return Kind::kText;
  const NoEffect* row = no_effect(key);
  if (row == nullptr) return std::nullopt;
  return is_boolean(row->value) ? Kind::kSwitch : Kind::kList;
}

bool NestedKeys::take(const std::string& key, const Given& given) {
  const std::string word = joined(given.words);
  if (key == kInit) {
    if (word != "xavier_uniform") {
      out_.faults.push_back(
          fmt::format("{} must be null or xavier_uniform; got {}; remove it: weights are "
                      "normal with std init_method_std, or uniform",
                      given.spelled, word));
      return true;
    }
    Given as_flag = given;
    as_flag.words = {"true"};
    out_.put(setting("init_method_xavier_uniform").key, std::move(as_flag));
    return true;
  }
  const NoEffect* row = no_effect(key);
  const bool wants_switch = row != nullptr ? is_boolean(row->value) : is_switch(key);
  if (wants_switch && !is_boolean(word)) {
    out_.faults.push_back(
        fmt::format("{} must be true or false; got \"{}\"; write one of them", given.spelled, word));
    return true;
  }
  if (row == nullptr) {
    fields_.insert_or_assign(key, given);
    return true;
  }
  if (is_value(word, row->value)) return true;
  if (row->others == Others::kNoted) {
    out_.notes.push_back(fmt::format("{}: has no effect; got {}: {}", given.spelled, word, row->meaning));
    return true;
  }
  if (find(key)) return false;
  out_.faults.push_back(
      fmt::format("{} must be {}; got {}; remove it: {}", given.spelled, row->value, word, row->meaning));
  return true;
}

bool NestedKeys::is_on(const std::string& field) const {
  const auto found = fields_.find(field);
  return found != fields_.end() && found->second.words == Words{"true"};
}

void NestedKeys::activation() {
  const auto function = fields_.find(kFunction);
  const bool gated = is_on(kGated);
  if (function == fields_.end()) {
    if (gated) {
      out_.faults.push_back(
          fmt::format("{} requires activation_func; got none; add it", fields_.at(kGated).spelled));
    }
    return;
  }
  const Given* biases = out_.find("add_bias_linear");
  const bool no_bias = biases != nullptr && biases->words == Words{"false"};
  const std::string word = joined(function->second.words);
  Given given = function->second;
  given.words = {activation_of(word, gated, no_bias && is_on(kFused))};
  if (given.words[0].empty()) {
    return out_.fault(
        setting("activation"),
        fmt::format("{} must be swiglu, squaredrelu without gated_linear_unit, or gelu; got {}{}; "
                    "write one of them",
                    given.spelled, word, gated ? " with gated_linear_unit" : ""));
  }
  out_.put("activation", std::move(given));
}

void NestedKeys::query_groups(int level) {
  const Given* groups = out_.find("num_query_groups");
  const Given* grouped = out_.find("group_query_attention");
  if (groups != nullptr && groups->level >= level) {
    Given on = *groups;
    on.words = {"true"};
    on.level = level;
    out_.put("group_query_attention", std::move(on));
  } else if (groups == nullptr && grouped != nullptr && grouped->level == level &&
             grouped->words == Words{"true"}) {
    out_.fault(
        setting("num_query_groups"),
        fmt::format("{} requires num_query_groups: without it Megatron's YAML reader gives each head its own "
                    "keys and values; got none; add it",
                    grouped->spelled));
  }
}

void NestedKeys::finish(int level) {
  activation();
  query_groups(level);
}

}  // namespace colonnade::config
