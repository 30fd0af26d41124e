// See weights.h.
#include "colonnade/inference/weights.h"

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/words_of_data.h"
#include "colonnade/job/foreign.h"
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
                       "seq_length",
                       "decoder_seq_length",
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

/// The settings that a native checkpoint keeps of its run, by key. A seed draws the samples of a run, and
/// texts that are no part of it.
void take(config::Run& run, const nlohmann::json& kept, config::Use use) {
  const bool with_data = !any_given(run, kDataKeys);
  for (const auto& [key, value] : kept.items()) {
    const config::Setting& setting = config::setting(key);
    const bool taken = kRunKeys.contains(key) || setting.group == "fill-in-the-middle" ||
                       (with_data && kDataKeys.contains(key)) ||
                       (key == "seed" && use == config::Use::kEvaluateData);
    if (taken && !given(run, key) && config::reads(use, setting))
      config::set(run, key, value.get<std::string>());
  }
}

}  // namespace

checkpoint::Source open_weights(const config::Run& run, const comm::Group& world, checkpoint::Check check) {
  const config::Checkpoint& c = run.checkpoint;
  if (c.load.empty() && c.pretrained_checkpoint.empty())
    throw ConfigError(
        "weights: --load or --pretrained-checkpoint must name them; got neither; write --load DIR");
  if (c.load.empty()) return checkpoint::Source::open(c.pretrained_checkpoint, c.ckpt_step, world, check);
  const auto found = checkpoint::find_checkpoint(c.load, c.ckpt_step, world, check);
  if (found) return checkpoint::Source::open_native(found->folder);
  if (!c.pretrained_checkpoint.empty())
    return checkpoint::Source::open(c.pretrained_checkpoint, std::nullopt, world, check);
  throw DataError(
      fmt::format("{}: --load must name a run folder, a checkpoint or a Hugging Face folder; got none of "
                  "them; correct the path",
                  c.load));
}

void take_settings(config::Run& run, config::Use use) {
  config::Checkpoint& c = run.checkpoint;
  if (const std::string fault = job::closed_load_fault(run); !fault.empty()) throw ConfigError(fault);
  if (c.pretrained_checkpoint.empty() && checkpoint::is_hugging_face_folder(c.load))
    std::swap(c.pretrained_checkpoint, c.load);
  const auto source = open_weights(run, {}, checkpoint::Check::kSizes);
  if (source.state().is_object() && source.state().contains("settings"))
    take(run, source.state().at("settings"), use);
}

}  // namespace colonnade::inference
