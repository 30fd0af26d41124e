// See nearest.h: names from other frameworks, typos, common words.
#include "colonnade/config/nearest.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "colonnade/base/edit_distance.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/spelling.h"

namespace colonnade::config {

namespace {

/// Names of settings in other frameworks, and common abbreviations.
struct ForeignName {
  const char* names;  ///< normalized, space-separated
  const char* flags;
};

/// Flags of single verbs come first: a row applies if the verb accepts its first flag.
constexpr ForeignName kForeignNames[] = {
    {"max_length max_len max_tokens max_gen_len num_tokens new_tokens tokens_to_generate n_predict",
     "--max-new-tokens"},
    {"temp", "--temperature"},
    {"input input_text text", "--prompt"},
    {"gpus num_gpus n_gpus ranks nproc world", "--world-size"},
    {"tp tp_size tensor_parallel tensor_parallel_size tensor_parallel_degree",
     "--tensor-model-parallel-size"},
    {"pp pp_size pipeline_parallel pipeline_parallel_size pipeline_parallel_degree",
     "--pipeline-model-parallel-size"},
    {"cp cp_size", "--context-parallel-size"},
    {"ep ep_size", "--expert-model-parallel-size"},
    {"sp", "--sequence-parallel"},
    {"vp vpp", "--num-virtual-stages-per-pipeline-rank"},
    {"layers n_layer n_layers num_hidden_layers depth", "--num-layers"},
    {"d_model n_embd embed_dim embedding_size model_dim", "--hidden-size"},
    {"d_ff ffn ffn_size ffn_dim intermediate_size", "--ffn-hidden-size"},
    {"heads n_head n_heads num_heads", "--num-attention-heads"},
    {"kv_heads n_kv_heads num_kv_heads num_key_value_heads", "--num-query-groups"},
    {"head_dim", "--kv-channels"},
    {"seqlen seq_len sequence_length context_length max_seq_len max_length block_size", "--seq-length"},
    {"vocab n_vocab", "--vocab-size"},
    {"experts n_experts moe_experts", "--num-experts"},
    {"rope_theta rope_base", "--rotary-base"},
    {"dropout", "--hidden-dropout or --attention-dropout"},
    {"learning_rate max_lr", "--lr"},
    {"warmup_steps warmup_iters num_warmup_steps", "--lr-warmup-iters"},
    {"lr_scheduler lr_scheduler_type lr_schedule", "--lr-decay-style"},
    {"wd", "--weight-decay"},
    {"grad_clip gradient_clipping max_grad_norm max_norm", "--clip-grad"},
    {"mbs micro_batch per_device_train_batch_size", "--micro-batch-size"},
    {"gbs gradient_accumulation_steps grad_accum accumulation_steps accumulate_grad_batches",
     "--global-batch-size"},
    {"steps max_steps num_steps train_steps iters max_iters num_iters num_iterations iterations epoch epochs "
     "num_epochs num_train_epochs",
     "--train-iters"},
    {"precision dtype torch_dtype mixed_precision amp", "--bf16 or --fp16"},
    {"data dataset datasets train_data data_dir", "--data-path"},
    {"output output_dir out_dir save_dir checkpoint_dir", "--save"},
    {"resume resume_from resume_from_checkpoint", "--load"},
    {"workers", "--num-workers"},
};

struct Candidate {
  std::string spelling, name;
  bool own = false;  ///< flag of the verb
  bool implemented = true;
};

std::set<std::string> words_of(const std::string& name) {
  std::set<std::string> words;
  std::istringstream text(name);
  for (std::string word; std::getline(text, word, '_');) words.insert(word);
  return words;
}

/// Training gets suggestions of all settings, including unsupported ones, whose error gives the reason.
bool is_candidate(Use use, const Setting& s) {
  return use == Use::kTrain || (s.cls == Class::kImplemented && reads(use, s));
}

std::string foreign_match(const std::string& asked, const std::vector<std::string>& own, Use use) {
  const auto accepted = [&](const std::string& flag) {
    const auto match = find(flag);
    return std::ranges::count(own, flag) > 0 || (match && is_candidate(use, *match->setting));
  };
  for (const ForeignName& row : kForeignNames) {
    std::istringstream names(row.names), flags(row.flags);
    std::string first;
    flags >> first;
    for (std::string name; names >> name;)
      if (name == asked && accepted(first)) return row.flags;
  }
  return "";
}

std::vector<Candidate> candidates(const std::vector<std::string>& own, Use use) {
  std::vector<Candidate> all;
  const auto add = [&all](const std::string& spelling, bool implemented) {
    all.push_back({spelling, folded(spelling), false, implemented});
  };
  for (const std::string& flag : own) all.push_back({flag, folded(flag), true});
  for (const Setting& s : schema()) {
    if (!is_candidate(use, s)) continue;
    const bool implemented = s.cls == Class::kImplemented;
    add(s.flag, implemented);
    for (const std::string& flag : s.aliases) add(flag, implemented);
    for (const std::string& flag : s.off_aliases) add(flag, implemented);
    if (s.kind == Kind::kSwitch) add(s.off_flag(), implemented);
  }
  return all;
}

/// Lexicographic distance: kind of match, then size of the difference. Smaller is nearer.
using Distance = std::array<std::size_t, 4>;
constexpr std::size_t kFar = 8;

/// Typos are nearest; then a common prefix, all words, or half of the words: implemented settings before
/// others, the verb's own flags first. Finally up to a third of the letters may differ.
Distance distance(const std::string& asked, const Candidate& candidate) {
  const std::string& name = candidate.name;
  const std::size_t edits = edit_distance(asked, name), size = asked.size();
  const std::size_t unsupported_last = candidate.implemented ? 0 : 1, own_last = candidate.own ? 0 : 1;
  const std::size_t typos = size < 4 ? 0 : size < 7 ? 1 : 2;
  if (edits <= typos) return {0, edits, own_last, unsupported_last};
  if (size < 3) return {kFar};
  if (size >= (asked.starts_with("no_") ? 6U : 3U) && name.starts_with(asked))
    return {1 + 3 * unsupported_last, own_last, name.size()};
  const auto mine = words_of(asked), its = words_of(name);
  std::size_t shared = 0;
  for (const std::string& word : mine) shared += its.count(word);
  if (shared == mine.size()) return {2 + 3 * unsupported_last, own_last, name.size()};
  const std::size_t united = mine.size() + its.size() - shared;
  if (2 * shared >= united) return {3 + 3 * unsupported_last, own_last, united - shared, name.size()};
  if (edits <= size / 3) return {7, edits, own_last, unsupported_last};
  return {kFar};
}

}  // namespace

std::string nearest(std::string_view flag, const std::vector<std::string>& own, Use use) {
  const std::string asked = folded(flag);
  if (const std::string flags = foreign_match(asked, own, use); !flags.empty()) return flags;
  std::string best;
  Distance least{kFar};
  for (const Candidate& candidate : candidates(own, use)) {
    const Distance now = distance(asked, candidate);
    if (now < least) best = candidate.spelling, least = now;
  }
  return best;
}

}  // namespace colonnade::config
