// See weights.h.
#include "colonnade/inference/weights.h"

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/words_of_data.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/job/continued.h"
#include "colonnade/job/foreign.h"
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
                       "allow_ambiguous_pad_tokens",
                       "mid_level_dataset_surplus",
                       "data_cache_path",
                       "mask_prob",
                       "short_seq_prob",
                       "vocab_extra_ids",
                       "sft",
                       "sft_tokenizer_prompt_format",
                       "chat_template"};

bool given(const config::Run& run, const std::string& key) { return run.given.contains(key); }
bool any_given(const config::Run& run, const Keys& keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return given(run, key); });
}

bool switched_on(const config::Run& run, const std::string& key) {
  return given(run, key) && config::text_of(run, config::setting(key)) == "true";
}

const char* const kFillGroup = "fill-in-the-middle";
const Keys kFileKeys = {"data_args_path", "per_split_data_args_path"};
const Keys kTokenizerKeys(std::begin(job::kTokenizerKeys), std::end(job::kTokenizerKeys));
const Keys kTokenizerFileKeys = {"tokenizer_model", "vocab_file", "merge_file"};
const Keys kMessageKeys = {"sft", "sft_tokenizer_prompt_format", "chat_template"};
const Keys kDocumentKeys = {"eod_mask_loss", "reset_position_ids", "reset_attention_mask",
                            "allow_ambiguous_pad_tokens"};

/// Settings of the run whose place is taken by what was given: by other data, samples of another kind,
/// another way to write messages, or files of another tokenizer.
class Replaced {
 public:
  Replaced(const config::Run& run, const nlohmann::json& kept) {
    const bool mock = switched_on(run, "mock_data");
    const bool turned = given(run, "sft") && kept.value("sft", "false") != (run.data.sft ? "true" : "false");
    if (any_given(run, kDataKeys) || any_given(run, kFileKeys)) add(kDataKeys);
    if (any_given(run, kTokenizerFileKeys)) add(kTokenizerFileKeys);
    if (turned || mock || switched_on(run, "fim_data")) add(kMessageKeys);
    if (turned) add(kDocumentKeys);
    const std::string& format = run.data.sft_tokenizer_prompt_format;
    if (!run.data.chat_template.empty()) add({"sft_tokenizer_prompt_format"});
    if (!format.empty() && format != "default") add({"chat_template"});
    no_fill_ = mock || switched_on(run, "sft");
  }
  [[nodiscard]] bool contains(const config::Setting& setting) const {
    return keys_.contains(setting.key) || (no_fill_ && setting.group == kFillGroup);
  }

 private:
  void add(const Keys& keys) { keys_.insert(keys.begin(), keys.end()); }
  Keys keys_;
  bool no_fill_ = false;
};

/// A seed draws the samples of a run, and texts that are no part of it. A run without validation says nothing
/// of its length.
bool is_of_use(const std::string& key, const std::string& value, config::Use use) {
  if (use == config::Use::kEvaluateTokens && kTokenizerKeys.contains(key)) return false;  // ids are given
  if (key == "seed") return use == config::Use::kEvaluateData;
  if (key == "eval_iters" && value == "0") return false;
  return kRunKeys.contains(key) || kDataKeys.contains(key) || config::setting(key).group == kFillGroup;
}

/// The settings that a native checkpoint keeps of its run, by key.
void take(config::Run& run, const nlohmann::json& kept, config::Use use) {
  const Replaced replaced(run, kept);
  for (const auto& [key, text] : kept.items()) {
    const config::Setting& setting = config::setting(key);
    const auto value = text.get<std::string>();
    if (given(run, key) || replaced.contains(setting) || !config::reads(use, setting)) continue;
    if (kTokenizerKeys.contains(key) && !run.checkpoint.use_tokenizer_model_from_checkpoint_args) continue;
    if (is_of_use(key, value, use)) config::set(run, key, value);
  }
  if (run.data.sft && !given(run, "sft"))
    run.notes.emplace_back("--sft: the checkpoint's run read chat messages; --no-sft reads texts");
  if (run.data.fim.enabled && !given(run, "fim_data"))
    run.notes.emplace_back("--fim-data: the checkpoint's run cut its texts; --no-fim-data reads them whole");
}

/// Ids are read: a tokenizer that only a YAML file names must not stop it.
void leave_out_tokenizer(config::Run& run) {
  const auto typed = [&run](const std::string& key) { return config::typed(run, key); };
  if (std::ranges::any_of(kTokenizerKeys, typed)) return;
  for (const std::string& key : kTokenizerKeys)
    config::set(run, key, config::text_of(config::Run{}, config::setting(key)));
}

}  // namespace

checkpoint::Source open_weights(const config::Run& run, const comm::Group& world, checkpoint::Check check) {
  const config::Checkpoint& c = run.checkpoint;
  if (c.load.empty() && c.pretrained_checkpoint.empty())
    throw ConfigError(
        "weights: --load or --pretrained-checkpoint must name them; got neither; write --load DIR");
  if (c.load.empty()) return convert::open_weights(c.pretrained_checkpoint, c.ckpt_step, world, check);
  const auto found = checkpoint::find_checkpoint(c.load, c.ckpt_step, world, check);
  if (found) return checkpoint::Source::open_native(found->folder);
  if (!c.pretrained_checkpoint.empty())
    return convert::open_weights(c.pretrained_checkpoint, std::nullopt, world, check);
  const std::string fault = checkpoint::foreign_weights_fault(c.load);
  throw DataError(!fault.empty()
                      ? fmt::format("--load: {}", fault)
                      : fmt::format("{}: --load must name a run folder, a checkpoint or a Hugging Face "
                                    "folder; got none of them; correct the path",
                                    c.load));
}

void take_settings(config::Run& run, config::Use use) {
  config::Checkpoint& c = run.checkpoint;
  if (const std::string fault = job::closed_load_fault(run); !fault.empty()) throw ConfigError(fault);
  if (c.pretrained_checkpoint.empty() && checkpoint::is_hugging_face_folder(c.load))
    std::swap(c.pretrained_checkpoint, c.load);
  const auto source = open_weights(run, {}, checkpoint::Check::kSizes);
  if (source.state().is_object() && source.state().contains("settings")) {
    if (c.use_checkpoint_args)
      job::keep_tokenizer(run, source.state().at("settings"), source.folder().string());
    take(run, source.state().at("settings"), use);
  }
  if (use == config::Use::kEvaluateTokens) return leave_out_tokenizer(run);
  job::use_copies(run, source.state(), source.folder());
  job::adopt_tokenizer(run, source);
}

}  // namespace colonnade::inference
