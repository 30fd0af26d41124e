// See weights.h.
#include "colonnade/inference/weights.h"

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/config/data_flags.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/convert/open.h"
#include "colonnade/job/folder_checks.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/job/tokenizer_source.h"
#include "colonnade/models/hf/config.h"

namespace colonnade::inference {
namespace {

using Keys = std::set<std::string>;

const Keys kDataKeys(config::kDataKeys.begin(), config::kDataKeys.end());
const Keys kRunKeys = {"tokenizer_type",
                       "tokenizer_model",
                       "vocab_file",
                       "merge_file",
                       "tiktoken_pattern",
                       "tiktoken_num_special_tokens",
                       "tokenizer_hf_include_special_tokens",
                       "seq_length",
                       "decoder_seq_length",
                       "global_batch_size",
                       "eval_iters",
                       "split",
                       "eod_mask_loss",
                       "reset_position_ids",
                       "reset_attention_mask",
                       "dataloader_inter_document_masking",
                       "allow_ambiguous_pad_tokens",
                       "mid_level_dataset_surplus",
                       "data_cache_path",
                       "mask_prob",
                       "short_seq_prob",
                       "vocab_extra_ids",
                       "sft",
                       "sft_tokenizer_prompt_format",
                       "chat_template"};

bool is_given(const config::Run& run, const std::string& key) { return run.given.contains(key); }
bool is_any_given(const config::Run& run, const Keys& keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return is_given(run, key); });
}

bool is_enabled(const config::Run& run, const std::string& key) {
  return is_given(run, key) && config::text_of(run, config::setting(key)) == "true";
}

const char* const kFimGroup = "fill-in-the-middle";
const Keys kFileKeys = {"data_args_path", "per_split_data_args_path"};
const Keys kTokenizerKeys(std::begin(job::kTokenizerKeys), std::end(job::kTokenizerKeys));
const Keys kTokenizerFileKeys = {"tokenizer_model", "vocab_file", "merge_file"};
const Keys kMessageKeys = {"sft", "sft_tokenizer_prompt_format", "chat_template"};
const Keys kDocumentKeys = {"eod_mask_loss", "reset_position_ids", "reset_attention_mask",
                            "dataloader_inter_document_masking", "allow_ambiguous_pad_tokens"};

/// Settings of the checkpoint's run that given settings override: other data, samples of another kind,
/// another message format, or files of another tokenizer.
class OverriddenSettings {
 public:
  OverriddenSettings(const config::Run& run, const nlohmann::json& saved) {
    const bool mock = is_enabled(run, "mock_data");
    const bool sft_toggled =
        is_given(run, "sft") && saved.value("sft", "false") != (run.data.sft ? "true" : "false");
    if (is_any_given(run, kDataKeys) || is_any_given(run, kFileKeys)) add(kDataKeys);
    if (is_any_given(run, kTokenizerFileKeys)) add(kTokenizerFileKeys);
    if (sft_toggled || mock || is_enabled(run, "fim_data")) add(kMessageKeys);
    if (sft_toggled) add(kDocumentKeys);
    const std::string& format = run.data.sft_tokenizer_prompt_format;
    if (!run.data.chat_template.empty()) add({"sft_tokenizer_prompt_format"});
    if (!format.empty() && format != "default") add({"chat_template"});
    no_fim_ = mock || is_enabled(run, "sft");
  }
  [[nodiscard]] bool contains(const config::Setting& setting) const {
    return keys_.contains(setting.key) || (no_fim_ && setting.group == kFimGroup);
  }

 private:
  void add(const Keys& keys) { keys_.insert(keys.begin(), keys.end()); }
  Keys keys_;
  bool no_fim_ = false;
};

/// The run's seed applies to its own samples only, not to generated text. eval_iters 0 (no validation) says
/// nothing about length.
bool applies_to(const std::string& key, const std::string& value, config::Use use) {
  if (use == config::Use::kEvaluateTokens && kTokenizerKeys.contains(key)) return false;  // ids are given
  if (key == "seed") return use == config::Use::kEvaluateData;
  if (key == "eval_iters" && value == "0") return false;
  return kRunKeys.contains(key) || kDataKeys.contains(key) || config::setting(key).group == kFimGroup;
}

/// Adopts run settings that a native checkpoint stores, by key.
void adopt(config::Run& run, const nlohmann::json& saved, config::Use use) {
  const OverriddenSettings overridden(run, saved);
  for (const auto& [key, text] : saved.items()) {
    const config::Setting& setting = config::setting(key);
    const auto value = text.get<std::string>();
    if (is_given(run, key) || overridden.contains(setting) || !config::reads(use, setting)) continue;
    if (kTokenizerKeys.contains(key) && !run.checkpoint.use_tokenizer_model_from_checkpoint_args) continue;
    if (applies_to(key, value, use)) config::set(run, key, value);
  }
  if (run.data.sft && !is_given(run, "sft"))
    run.notes.emplace_back("--sft: the checkpoint's run read chat messages; --no-sft reads texts");
  if (run.data.fim.enabled && !is_given(run, "fim_data"))
    run.notes.emplace_back(
        "--fim-data: the checkpoint's run used fill-in-the-middle samples; --no-fim-data disables them");
}

/// Token ids need no tokenizer; one from a YAML file alone must not cause an error.
void clear_tokenizer(config::Run& run) {
  const auto typed = [&run](const std::string& key) { return config::is_from_command_line(run, key); };
  if (std::ranges::any_of(kTokenizerKeys, typed)) return;
  for (const std::string& key : kTokenizerKeys)
    config::set(run, key, config::text_of(config::Run{}, config::setting(key)));
}

}  // namespace

checkpoint::CheckpointReader open_weights(const config::Run& run, const comm::Group& world,
                                          checkpoint::Check check) {
  const config::Checkpoint& c = run.checkpoint;
  if (c.load.empty() && c.pretrained_checkpoint.empty())
    throw ConfigError("--load or --pretrained-checkpoint must name the weights; got neither; use --load DIR");
  if (c.load.empty())
    return convert::open_weights(c.pretrained_checkpoint, c.ckpt_step, world, check, &run.model);
  if (auto found = convert::find_run(c.load, c.ckpt_step, world, check, &run.model)) return *found;
  if (!c.pretrained_checkpoint.empty())
    return convert::open_weights(c.pretrained_checkpoint, std::nullopt, world, check, &run.model);
  const std::string fault = checkpoint::unsupported_weights_fault(c.load);
  throw DataError(!fault.empty()
                      ? fmt::format("--load: {}", fault)
                      : fmt::format("{}: --load must name a run folder, a checkpoint or a Hugging Face "
                                    "folder; got none of them; correct the path",
                                    c.load));
}

void adopt_settings(config::Run& run, config::Use use) {
  config::Checkpoint& c = run.checkpoint;
  if (const std::string fault = job::unreadable_load_fault(run); !fault.empty()) throw ConfigError(fault);
  if (c.pretrained_checkpoint.empty() && checkpoint::is_hugging_face_folder(c.load))
    std::swap(c.pretrained_checkpoint, c.load);
  const auto source = open_weights(run, {}, checkpoint::Check::kSizes);
  if (source.state().is_object() && source.state().contains("settings")) {
    if (c.use_checkpoint_args)
      job::resume_tokenizer(run, source.state().at("settings"), source.folder().string());
    adopt(run, source.state().at("settings"), use);
  }
  if (use == config::Use::kEvaluateTokens) return clear_tokenizer(run);
  job::use_tokenizer_copies(run, source.state(), source.folder());
  job::adopt_tokenizer(run, source);
}

}  // namespace colonnade::inference
