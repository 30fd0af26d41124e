// See resume_policy.h: tables of settings, and comparison of sample orders.
#include "colonnade/job/resume_policy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/chat_template/chat_template.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/config/data_flags.h"
#include "colonnade/config/optimizers.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/stacks.h"
#include "colonnade/data/split.h"
#include "colonnade/job/tokenizer_source.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {
namespace {

using nlohmann::json;

bool uses_fim(const config::Run& run) { return run.data.fim.enabled; }

/// A setting that a resumed run keeps unless it is given. A given value must be the saved one, unless the
/// setting may change or does not apply to the run.
struct ResumedSetting {
  std::string_view key, decides;
  bool of_optimizer = false;
  bool may_change = false;
  bool (*applies)(const config::Run&) = nullptr;
};
constexpr ResumedSetting kResumed[] = {
    {"seed", "the order of samples and dropout"},
    {"seq_length", "how data is split into samples"},
    {"split", "which documents are trained on"},
    {"dataloader_type", "the order of samples"},
    {"mid_level_dataset_surplus", "the order of samples in a blend"},
    {"decoder_seq_length", "how data is split into samples"},
    {"short_seq_prob", "how data is split into samples"},
    {"mask_prob", "which tokens are masked"},
    {"vocab_extra_ids", "the sentinels of masked spans"},
    {"fim_data", "what a sample is"},
    {"fim_rate", "which texts are permuted for fill-in-the-middle"},
    {"fim_spm_rate", "the fill-in-the-middle format"},
    {"fim_split_sample", "which texts are permuted for fill-in-the-middle"},
    {"fim_fragment_rate", "which texts are permuted for fill-in-the-middle"},
    {"fim_no_prefix", "which texts are permuted for fill-in-the-middle"},
    {"fim_prefix_token", "the fill-in-the-middle format"},
    {"fim_middle_token", "the fill-in-the-middle format"},
    {"fim_suffix_token", "the fill-in-the-middle format"},
    {"fim_pad_token", "the fill-in-the-middle format"},
    {"fim_eod_token", "where a text ends"},
    {.key = "tokenizer_hf_include_special_tokens",
     .decides = "the fill-in-the-middle format",
     .applies = uses_fim},
    {"allow_ambiguous_pad_tokens", "which tokens have a loss"},
    {"sft", "what a sample is"},
    {"sft_tokenizer_prompt_format", "the format of messages"},
    {"chat_template", "the format of messages"},
    {"calculate_per_token_loss", "the weight of a token's loss"},
    {"optimizer", "the meaning of its states", true},
    {"loss_scale_window", "how the loss scale is updated", true, true},
    {"hysteresis", "how the loss scale is updated", true, true},
    {"min_loss_scale", "how the loss scale is updated", true, true},
    {.key = "params_dtype", .decides = "the compute dtype", .may_change = true},
    {.key = "fp32_residual_connection", .decides = "the dtype of the residual stream", .may_change = true},
    {.key = "hidden_dropout", .decides = "dropout", .may_change = true},
    {.key = "attention_dropout", .decides = "dropout", .may_change = true},
};

/// kResumed with the settings of optimizers that decide about saved states.
std::vector<ResumedSetting> resumed_settings() {
  std::vector<ResumedSetting> rows(std::begin(kResumed), std::end(kResumed));
  auto next = std::next(std::ranges::find(rows, "optimizer", &ResumedSetting::key));
  for (const config::OptimizerSetting& s : config::optimizer_settings())
    if (!s.decides.empty()) next = std::next(rows.insert(next, ResumedSetting{s.key, s.decides, true}));
  return rows;
}

bool must_stay(const ResumedSetting& row, const config::Run& run) {
  return !row.may_change && (row.applies == nullptr || row.applies(run));
}

bool has_fp16(const config::Run& run) { return config::dtypes_of(run).needs_loss_scale(); }

/// Whether micro-batches with different numbers of loss tokens have equal weights.
bool weighs_microbatches(const config::Run& run) {
  return (run.data.eod_mask_loss || run.data.sft || config::has_several_stacks(run.model) ||
          run.model.bidirectional) &&
         !run.training.calculate_per_token_loss;
}

/// A setting that may change on resume, and the effect of a change, or that under --no-load-optim where it is
/// another one. A setting that does not apply to the run is not reported.
struct ChangeableSetting {
  std::string_view key, effect, without_optimizer = "";
  bool (*applies)(const config::Run&) = nullptr;
};
constexpr ChangeableSetting kChangeable[] = {
    {"data_path", "sample indices continue in the new data"},
    {"train_data_path", "sample indices continue in the new data"},
    {"valid_data_path", "validation losses are not comparable"},
    {"full_validation", "validation losses are not comparable"},
    {"multiple_validation_sets", "validation losses are not comparable"},
    {"test_data_path", "test losses are not comparable"},
    {"mock_data", "sample indices continue in the new data"},
    {"global_batch_size", "schedules are counted in samples"},
    {"step_batch_size_schedule", "the samples consumed so far decide the size of the next batch"},
    {"rampup_batch_size", "the samples consumed so far decide the size of the next batch"},
    {"decrease_batch_size_if_needed", "batch sizes may be rounded differently"},
    {"iterations_to_skip", "the listed iterations after the checkpoint read data without an update"},
    {"params_dtype", "the fp32 weights are kept, layers compute in it",
     "model weights are converted to it, the optimizer's fp32 weights are not loaded"},
    {"fp32_residual_connection", "the residual stream is rounded differently"},
    {"hidden_dropout", "losses are not comparable"},
    {"attention_dropout", "losses are not comparable"},
    {"apply_query_key_layer_scaling", "scores are rounded differently"},
    {"moe_input_jitter_eps", "losses are not comparable"},
    {"moe_expert_capacity_factor", "losses are not comparable"},
    {"moe_token_drop_policy", "losses are not comparable"},
    {"moe_router_load_balancing_type",
     "steps differ; between sinkhorn and another kind losses are not comparable"},
    {"moe_router_force_load_balancing", "losses are not comparable"},
    {"moe_aux_loss_coeff", "steps differ"},
    {"moe_z_loss_coeff", "steps differ"},
    {"moe_router_bias_update_rate", "steps differ"},
    {"mtp_loss_scaling_factor", "steps differ"},
    {"reset_position_ids", "losses are not comparable"},
    {"reset_attention_mask", "losses are not comparable"},
    {"dataloader_inter_document_masking", "losses are not comparable"},
    {"eod_mask_loss", "losses are not comparable"},
    {"clip_grad", "steps differ"},
    {"qk_clip", "steps differ"},
    {"qk_clip_alpha", "steps differ"},
    {"qk_clip_threshold", "steps differ"},
    {"main_grads_dtype", "gradients are rounded differently"},
    {"main_params_dtype", "main parameters are converted", "main parameters are stored in it"},
    {"exp_avg_dtype", "the optimizer states are converted", "new optimizer states are stored in it"},
    {"exp_avg_sq_dtype", "the optimizer states are converted", "new optimizer states are stored in it"},
    {"apply_wd_to_qk_layernorm", "steps differ"},
    {"freeze_parameters", "steps differ; parameters that were frozen have no optimizer states"},
    {.key = "micro_batch_size",
     .effect = "loss weights of tokens change: each micro-batch is averaged over its loss tokens",
     .applies = weighs_microbatches},
    {.key = "loss_scale", .effect = "steps are rounded differently", .applies = has_fp16},
    {.key = "loss_scale_window", .effect = "the loss scale is updated differently", .applies = has_fp16},
    {.key = "hysteresis", .effect = "the loss scale is updated differently", .applies = has_fp16},
    {.key = "min_loss_scale", .effect = "the loss scale is updated differently", .applies = has_fp16},
};

/// kChangeable with the settings of optimizers that decide about single steps only.
std::vector<ChangeableSetting> changeable_settings() {
  std::vector<ChangeableSetting> rows(std::begin(kChangeable), std::end(kChangeable));
  auto next = std::next(std::ranges::find(rows, "clip_grad", &ChangeableSetting::key));
  for (const config::OptimizerSetting& s : config::optimizer_settings())
    if (s.decides.empty()) next = std::next(rows.insert(next, ChangeableSetting{s.key, "steps differ"}));
  return rows;
}

/// The settings in a checkpoint's state; empty for a Hugging Face folder.
json saved_settings(const json& state) {
  return state.is_object() && state.contains("settings") ? state.at("settings") : json::object();
}

/// Canonical text of a value, the same for equal values.
std::string canonical(std::string_view key, const std::string& text) {
  if (key != "split") return text;
  const auto words = config::parse_split(text);
  return words.fault.empty() ? fmt::format("{}", fmt::join(words.parts, ",")) : text;
}

void make_absolute(std::string& path) {
  if (!path.empty()) path = std::filesystem::absolute(path).lexically_normal().string();
}

/// Makes the prefixes in `words` absolute; with weights every second word is a prefix.
void make_absolute(std::vector<std::string>& words) {
  const std::size_t step = config::is_weighted_blend(words) ? 2 : 1;
  for (std::size_t i = step - 1; i < words.size(); i += step) make_absolute(words[i]);
}

std::string described(const json& tokenizer, const std::string& file) {
  const std::string sum = tokenizer.value("xxh3_128", "");
  return tokenizer.at("type").get<std::string>() +
         (sum.empty() ? "" : fmt::format(" {} (checksum {}...)", file, sum.substr(0, 8)));
}

std::string times(std::int64_t passes) { return passes == 1 ? "once" : fmt::format("{} times", passes); }

std::string requested(const json& set) {
  return set.at("asked").is_null() ? "all its samples" : fmt::format("{} samples", set.at("asked").dump());
}

/// Why the sample order of `set` differs from that of `was`; "" when it does not, or when the number of
/// tokens does.
std::string order_change(const std::string& split, const json& was, const json& set) {
  const bool same = was.at("passes") == set.at("passes") && was.at("last_apart") == set.at("last_apart");
  if (same || was.at("tokens") != set.at("tokens")) return "";
  return fmt::format(
      "{}: was read {} for {} of the {} data in the checkpoint and is now read {} for {}: the order of samples "
      "changes, so some samples repeat early and others come late; to keep it, request as many samples as before",
      set.at("name").get<std::string>(), times(was.at("passes")), requested(was), split,
      times(set.at("passes")), requested(set));
}

/// Whether the words that name the data of a split differ from those in a checkpoint. `now` has absolute
/// paths.
bool names_other_data(const config::Run& now, const json& settings, const std::string& split) {
  return std::ranges::any_of(config::kDataKeys, [&](std::string_view key) {
    return config::names_data_of(split, key) && settings.contains(key) &&
           settings.at(std::string(key)).get<std::string>() != config::text_of(now, config::setting(key));
  });
}

/// Calls visit(split, was, is) for every split whose paths have not changed.
template <typename Visit>
void for_each_split(const config::Run& run, const json& now, const json& state, const Visit& visit) {
  if (!state.is_object() || !state.contains("data")) return;
  const config::Run named = with_absolute_paths(run);
  for (const auto& [split, was] : state.at("data").items())
    if (now.contains(split) && !names_other_data(named, saved_settings(state), split) &&
        was.at("sets").size() == now.at(split).at("sets").size())
      visit(split, was, now.at(split));
}

json tokens_of(const json& split) {
  json tokens = json::array();
  for (const json& set : split.at("sets")) tokens.push_back(set.at("tokens"));
  return tokens;
}

void add_part(std::vector<ChangedTokens>& changed, std::string name, ChangedTokens::Part part) {
  auto set = std::ranges::find(changed, name, &ChangedTokens::name);
  if (set == changed.end()) set = changed.insert(set, {.name = std::move(name), .parts = {}});
  if (std::ranges::find(set->parts, part) == set->parts.end()) set->parts.push_back(std::move(part));
}

}  // namespace

void resume_tokenizer(config::Run& run, const json& settings, const std::string& source) {
  const config::Checkpoint& c = run.checkpoint;
  if (!c.use_tokenizer_model_from_checkpoint_args) return;
  // The settings of a tokenizer are taken together or not at all.
  if (names_tokenizer(run) && (!c.use_checkpoint_args || settings.value("tokenizer_type", "").empty()))
    return;
  for (const char* key : kTokenizerKeys)
    if (settings.contains(key))
      config::override_from_checkpoint(run, key, settings.at(key).get<std::string>(), source);
}

void resume_settings(config::Run& run, const json& state, const std::string& source,
                     std::vector<std::string>& faults) {
  const json settings = saved_settings(state);
  for (const ResumedSetting& row : resumed_settings()) {
    const std::string key(row.key);
    if (!settings.contains(key) || (row.of_optimizer && run.checkpoint.no_load_optim)) continue;
    const auto was = settings.at(key).get<std::string>();
    const config::Setting& s = config::setting(key);
    if (!run.given.contains(key) || run.invalid_keys.contains(key)) {
      config::set(run, key, was);
    } else if (config::checkpoint_wins(run, key)) {
      config::override_from_checkpoint(run, key, was, source);
    } else if (must_stay(row, run) && canonical(key, config::text_of(run, s)) != canonical(key, was)) {
      const config::GivenSpelling is(run, s);
      faults.push_back(fmt::format(
          "{} must keep its value when a run resumes, because it decides {}; got {} from {} and {} in {}; remove {}, "
          "or {}",
          is.flag, row.decides, is.value(config::text_of(run, s)), run.given.at(key), is.value(was), source,
          is.flag,
          row.of_optimizer ? "start with new optimizer states with --no-load-optim"
                           : "start a new run with these weights with --finetune"));
    }
  }
  resume_tokenizer(run, settings, source);
  use_tokenizer_copies(run, state, source);
  std::string fault = tokenizer_fault(run, state, source);
  if (!fault.empty()) faults.push_back(std::move(fault));
  fault = template_fault(run, state, source);
  if (!fault.empty()) faults.push_back(std::move(fault));
}

std::vector<std::string> changed_settings(const config::Run& run, const json& state) {
  const json settings = saved_settings(state);
  const config::Run now = with_absolute_paths(run);
  std::vector<std::string> changes;
  for (const ChangeableSetting& row : changeable_settings()) {
    const std::string key(row.key);
    if (!settings.contains(key) || (row.applies != nullptr && !row.applies(run))) continue;
    const config::Setting& s = config::setting(key);
    const auto was = settings.at(key).get<std::string>();
    const std::string is = config::text_of(now, s);
    const bool fresh_optimizer = run.checkpoint.no_load_optim && !row.without_optimizer.empty();
    if (was != is)
      changes.push_back(fmt::format("{}: was {} in the checkpoint and is {} now: {}", s.flag,
                                    was.empty() ? "none" : was, is.empty() ? "none" : is,
                                    fresh_optimizer ? row.without_optimizer : row.effect));
  }
  return changes;
}

json data_state(const data::Splits& splits) {
  json state = json::object();
  for (std::size_t i = 0; i < splits.size(); ++i) {
    if (splits[i] == nullptr) continue;
    json& split = state[data::kSplitNames[i]];
    split = {{"permuted", splits[i]->permuted()}, {"sets", json::array()}};
    for (const data::SampleOrder& order : splits[i]->samples().orders())
      split["sets"].push_back({{"name", order.name},
                               {"tokens", order.tokens},
                               {"passes", order.passes},
                               {"last_apart", order.separate_final_epoch},
                               {"asked", order.asked ? json(*order.asked) : json(nullptr)}});
  }
  return state;
}

std::vector<ChangedTokens> changed_tokens(const config::Run& run, const json& now, const json& state) {
  std::vector<ChangedTokens> changed;
  for_each_split(run, now, state, [&](const std::string& split, const json& was, const json& is) {
    for (std::size_t i = 0; i < is.at("sets").size(); ++i) {
      const json &before = was.at("sets")[i], &set = is.at("sets")[i];
      if (before.at("tokens") != set.at("tokens"))
        add_part(changed, set.at("name"), {split, before.at("tokens"), set.at("tokens")});
    }
  });
  return changed;
}

std::vector<std::string> changed_orders(const config::Run& run, const json& now, const json& state) {
  std::vector<std::string> changes;
  for_each_split(run, now, state, [&](const std::string& split, const json& was, const json& is) {
    for (std::size_t i = 0; i < is.at("sets").size(); ++i) {
      std::string change = order_change(split, was.at("sets")[i], is.at("sets")[i]);
      if (!change.empty()) changes.push_back(std::move(change));
    }
    if (was.at("permuted") != is.at("permuted") && tokens_of(was) == tokens_of(is))
      changes.push_back(fmt::format(
          "--dataloader-type cyclic: permuted {} samples of the {} data in the checkpoint and now permutes {}: "
          "the order of samples changes; it depends on the number of samples and --global-batch-size",
          was.at("permuted").dump(), split, is.at("permuted").dump()));
  });
  return changes;
}

config::Run with_absolute_paths(config::Run run) {
  config::Data& d = run.data;
  config::Checkpoint& c = run.checkpoint;
  for (auto* words : {&d.data_path, &d.train_data_path, &d.valid_data_path, &d.test_data_path})
    make_absolute(*words);
  if (std::filesystem::is_regular_file(d.chat_template)) make_absolute(d.chat_template);
  for (auto* path : {&d.tokenizer_model, &d.vocab_file, &d.merge_file, &d.data_cache_path, &c.save, &c.load,
                     &c.pretrained_checkpoint, &run.logging.tensorboard_dir, &run.logging.wandb_save_dir})
    make_absolute(*path);
  return run;
}

std::string ids_file(const config::Data& data) {
  if (data.tokenizer_type == "NullTokenizer") return "";
  if (!data.vocab_file.empty()) return data.vocab_file;
  return data.tokenizer_model.empty() ? "" : tokenizers::tokenizer_file(data.tokenizer_model);
}

namespace {

/// The checksum of the chat template's source.
std::string template_checksum(const config::Data& data) {
  return checkpoint::checksum_of(chat_template::read_template({data.tokenizer_model, data.chat_template,
                                                               data.sft_tokenizer_prompt_format})
                                     .source());
}

}  // namespace

json tokenizer_state(const config::Run& run, const tokenizers::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return nullptr;
  const auto id = [](std::int32_t value) { return value < 0 ? json(nullptr) : json(value); };
  json state = {{"type", run.data.tokenizer_type},
                {"vocab_size", tokenizer->vocab_size()},
                {"bos_token_id", id(tokenizer->special().bos)},
                {"eos_token_id", id(tokenizer->eod())}};
  if (const std::string file = ids_file(run.data); !file.empty())
    state["xxh3_128"] = checkpoint::file_checksum(file).xxh3_128;
  if (run.data.sft) state[kTemplateChecksum] = template_checksum(run.data);
  return state;
}

std::string tokenizer_fault(const config::Run& run, const json& state, const std::string& source) {
  if (!state.is_object() || !state.contains("tokenizer") || state.at("tokenizer").is_null()) return "";
  if (run.data.tokenizer_type.empty()) return "";
  const json& was = state.at("tokenizer");
  json is = {{"type", run.data.tokenizer_type}};
  if (run.data.tokenizer_type != "NullTokenizer") {
    const std::string file = ids_file(run.data);
    if (file.empty()) return "";
    is["xxh3_128"] = checkpoint::file_checksum(file).xxh3_128;
  }
  if (is.value("xxh3_128", "") == was.value("xxh3_128", "")) return "";
  return fmt::format(
      "--tokenizer-model: the tokenizer must be the one of {}; got {} and {} there; remove --tokenizer-type and "
      "--tokenizer-model, or give that tokenizer",
      source, described(is, run.data.vocab_file.empty() ? run.data.tokenizer_model : run.data.vocab_file),
      described(was, saved_settings(state).value("tokenizer_model", "")));
}

std::string template_fault(const config::Run& run, const json& state, const std::string& source) {
  if (!state.is_object() || !state.contains("tokenizer") || !state.at("tokenizer").is_object()) return "";
  const std::string was = state.at("tokenizer").value(kTemplateChecksum, "");
  if (was.empty() || !run.data.sft) return "";
  const json settings = saved_settings(state);
  const config::Run now = with_absolute_paths(run);
  for (const char* key :
       {"chat_template", "sft_tokenizer_prompt_format"})  // another choice is reported by resume_settings
    if (settings.value(key, "") != config::text_of(now, config::setting(key))) return "";
  std::string is;
  try {
    is = template_checksum(run.data);
  } catch (const Error&) {
    return "";  // opening the data reports the fault
  }
  if (is == was) return "";
  return fmt::format(
      "--chat-template must keep its text when a run resumes; got a template of {} with other text (checksum {}..., "
      "and {}... in {}); restore the text, or start a new run with these weights with --finetune",
      run.data.chat_template.empty() ? run.data.tokenizer_model : run.data.chat_template, is.substr(0, 8),
      was.substr(0, 8), source);
}

}  // namespace colonnade::job
