// Rules of data, tokenizer and checkpoints.
#include <algorithm>

#include "colonnade/config/schema.h"
#include "colonnade/config/words_of_data.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool per_split(const config::Data& d) {
  return !d.train_data_path.empty() || !d.valid_data_path.empty() || !d.test_data_path.empty();
}

Broken data_once(const Run& r) {
  const auto& d = r.data;
  const int files = (d.data_args_path.empty() ? 0 : 1) + (d.per_split_data_args_path.empty() ? 0 : 1);
  const int ways = (d.data_path.empty() ? 0 : 1) + (d.mock_data ? 1 : 0) + (per_split(d) ? 1 : 0) + files;
  if (ways == 1) return std::nullopt;
  const bool keep = !d.data_path.empty();
  std::vector<Edit> edits{{"mock_data", keep ? "false" : "true"},
                          {"train_data_path", ""},
                          {"valid_data_path", ""},
                          {"test_data_path", ""}};
  if (files > 0) {
    edits.push_back({"data_args_path", ""});
    edits.push_back({"per_split_data_args_path", ""});
  }
  return Finding{
      ways == 0 ? "--data-path or --mock-data" : "data",
      "exactly one of --data-path, --train-data-path and its kin, a file with either, and --mock-data must be given",
      fmt::format("{} of them", ways),
      std::move(edits),
      ways == 0 ? "write --data-path PREFIX, or --mock-data to try things out" : "leave the others out",
      ways == 0};
}

Broken train_data(const Run& r) {
  const auto& d = r.data;
  if (!per_split(d) || r.training.skip_train || !d.train_data_path.empty()) return std::nullopt;
  const auto& other = d.valid_data_path.empty() ? d.test_data_path : d.valid_data_path;
  return Finding{"--train-data-path",
                 "must be given with --valid-data-path or --test-data-path",
                 "none",
                 {{"train_data_path", fmt::format("{}", other.front())}},
                 "write --train-data-path PREFIX"};
}

Broken data_paths(const Run& r) {
  const auto& d = r.data;
  const std::pair<const char*, const std::vector<std::string>*> all[] = {
      {"data_path", &d.data_path},
      {"train_data_path", &d.train_data_path},
      {"valid_data_path", &d.valid_data_path},
      {"test_data_path", &d.test_data_path}};
  for (const auto& [key, words] : all) {
    const auto fault = config::paths_fault(*words);
    if (!fault) continue;
    std::string names;  // those that are no numbers, as a blend without weights
    for (const std::string& word : *words)
      if (!config::number_of(word)) names += (names.empty() ? "" : " ") + word;
    return Finding{config::setting(key).flag, fault->rule, fault->got, {{key, names}}, fault->way_out};
  }
  return std::nullopt;
}

Broken split(const Run& r) {
  const config::SplitWords words = config::read_split(r.data.split);
  if (words.fault.empty()) return std::nullopt;
  return Finding{"--split",
                 "must be one to three numbers >= 0 whose sum is above 0",
                 fmt::format("'{}' ({})", r.data.split, words.fault),
                 {{"split", "969,30,1"}},
                 "write for example --split 969,30,1"};
}

Broken vocabulary(const Run& r) {
  const bool reads_file = !r.data.tokenizer_type.empty() && r.data.tokenizer_type != "NullTokenizer";
  if (r.model.vocab_size > 0 || reads_file) return std::nullopt;
  return Finding{"--vocab-size",
                 "the size of the vocabulary must be known",
                 "neither --vocab-size nor a tokenizer with a file",
                 {{"vocab_size", "50257"}},
                 "write --vocab-size N (ids 0 to N-1), or --tokenizer-type and --tokenizer-model",
                 !r.data.mock_data};
}

Broken tokenizer_file(const Run& r) {
  const config::Data& d = r.data;
  const bool reads_file = !d.tokenizer_type.empty() && d.tokenizer_type != "NullTokenizer";
  const bool one_by_one = d.tokenizer_type == "GPT2BPETokenizer"
                              ? !d.vocab_file.empty() && !d.merge_file.empty()
                              : !d.vocab_file.empty();
  if (!reads_file || !d.tokenizer_model.empty() || one_by_one) return std::nullopt;
  return Finding{"--tokenizer-model",
                 fmt::format("{} reads a file", r.data.tokenizer_type),
                 "none",
                 {{"tokenizer_model", "tokenizer.model"}},
                 "write --tokenizer-model FILE"};
}

/// Texts are needed that a tokenizer can read, one behind the other.
Broken fim_data(const Run& r) {
  const config::Data& d = r.data;
  if (!d.fim.enabled || (!d.mock_data && !d.sft && r.family == "gpt")) return std::nullopt;
  return Finding{"--fim-data",
                 "cuts the texts of a gpt's data files",
                 d.mock_data ? "--mock-data"
                 : d.sft     ? "--sft"
                             : r.family,
                 {{"fim_data", "false"}},
                 "leave it out"};
}

/// Other samples have no loss of their own accord where a pad stands.
Broken ambiguous_pads(const Run& r) {
  const config::Data& d = r.data;
  if (!d.allow_ambiguous_pad_tokens || (!d.sft && r.family == "gpt")) return std::nullopt;
  return Finding{"--allow-ambiguous-pad-tokens",
                 "does nothing but for texts of a gpt",
                 d.sft ? "--sft" : r.family,
                 {{"allow_ambiguous_pad_tokens", "false"}},
                 "leave it out"};
}

/// As mask_spans has it: less than one token of the longest sample.
Broken hidden_tokens(const Run& r) {
  const bool bert = r.family == "bert";
  const std::int64_t most = r.training.seq_length - (bert ? 3 : 2);  // beside cls and sep
  if ((!bert && r.family != "t5") || most < 2 || r.data.mask_prob * static_cast<double>(most) >= 1)
    return std::nullopt;
  std::int64_t percent = 1;
  while (static_cast<double>(percent) / 100 * static_cast<double>(most) < 1) ++percent;
  return Finding{"--mask-prob",
                 fmt::format("must be at least 1 / {}, one token of a sample of --seq-length {}", most,
                             r.training.seq_length),
                 text(r.data.mask_prob),
                 {{"mask_prob", text(static_cast<double>(percent) / 100)}},
                 ""};
}

Broken fim_tokenizer(const Run& r) {
  const std::string& type = r.data.tokenizer_type;
  if (!r.data.fim.enabled || (!type.empty() && type != "NullTokenizer")) return std::nullopt;
  return Finding{"--tokenizer-type",
                 "with --fim-data it must read texts, which are cut at characters",
                 type.empty() ? "none" : type,
                 {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "starcoder"}},
                 "write --tokenizer-type HuggingFaceTokenizer --tokenizer-model FOLDER",
                 type.empty(),
                 true};
}

Broken fim_rates(const Run& r) {
  const config::FillInTheMiddle& fim = r.data.fim;
  if (!fim.enabled || (fim.rate > 0 && fim.spm_rate > 0)) return std::nullopt;
  Finding found{"", "must be above 0 with --fim-data", "", {}, ""};
  if (!(fim.rate > 0)) found.add(config::setting("fim_rate"), text(fim.rate), "0.5");
  if (!(fim.spm_rate > 0)) found.add(config::setting("fim_spm_rate"), text(fim.spm_rate), "0.5");
  return found;
}

Broken sft_data(const Run& r) {
  if (!r.data.sft || !r.data.mock_data) return std::nullopt;
  return Finding{"--sft",
                 "reads files of chat messages",
                 "--mock-data",
                 {{"mock_data", "false"}, {"data_path", "chats.jsonl"}},
                 "write --data-path FILE.jsonl"};
}

Broken sft_model(const Run& r) {
  if (!r.data.sft || r.family == "gpt") return std::nullopt;
  return Finding{"--sft", "is of gpt", r.family, {{"sft", "false"}}, "leave it out"};
}

Broken sft_tokenizer(const Run& r) {
  const std::string& type = r.data.tokenizer_type;
  if (!r.data.sft || type == "HuggingFaceTokenizer" || type == "SFTTokenizer") return std::nullopt;
  return Finding{
      "--tokenizer-type",
      "with --sft it must be HuggingFaceTokenizer or SFTTokenizer, whose special tokens are found in text",
      type.empty() ? "none" : type,
      {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "llama-3"}},
      "write --tokenizer-type HuggingFaceTokenizer --tokenizer-model FOLDER",
      type.empty(),
      true};
}

/// Positions and attention start anew in packed samples, and only together.
Broken sft_documents(const Run& r) {
  const config::Data& d = r.data;
  if (!d.sft || (d.reset_position_ids == d.reset_attention_mask && !d.eod_mask_loss)) return std::nullopt;
  Finding found{
      "", "with --sft packs conversations only beside the other one", "", {}, "write both, or none of them"};
  if (d.eod_mask_loss) {
    found.rule = "with --sft does nothing: answers alone have a loss";
    found.fix = "leave it out";
    found.add(config::setting("eod_mask_loss"), "it", "false");
    return found;
  }
  const char* missing = d.reset_position_ids ? "reset_attention_mask" : "reset_position_ids";
  found.add(config::setting(missing), "without it", "true");
  return found;
}

Broken sft_format(const Run& r) {
  const config::Data& d = r.data;
  const std::string& format = d.sft_tokenizer_prompt_format;
  if (!d.sft || d.chat_template.empty() || format.empty() || format == "default") return std::nullopt;
  return Finding{"--chat-template",
                 "is read with --sft-tokenizer-prompt-format default",
                 format,
                 {{"sft_tokenizer_prompt_format", "default"}},
                 "leave one of them out"};
}

Broken retain(const Run& r) {
  const auto& c = r.checkpoint;
  if (!c.save_retain_interval ||
      (c.save_interval && *c.save_interval > 0 && *c.save_retain_interval % *c.save_interval == 0))
    return std::nullopt;
  if (!c.save_interval) {
    return Finding{"--save-retain-interval",
                   "needs --save-interval",
                   text(*c.save_retain_interval),
                   {{"save_retain_interval", "unset"}},
                   "leave it out"};
  }
  return Finding{"--save-retain-interval",
                 "must be a multiple of --save-interval",
                 fmt::format("{} and {}", *c.save_retain_interval, *c.save_interval),
                 {{"save_retain_interval",
                   text(round_up(*c.save_retain_interval, std::max<std::int64_t>(*c.save_interval, 1)))}},
                 ""};
}

Broken load_given(const Run& r) {
  if (!r.checkpoint.load.empty() || !r.checkpoint.pretrained_checkpoint.empty()) return std::nullopt;
  Finding found{"", "needs --load", "", {}, "leave it out, or write --load DIR"};
  for (const char* key : {"ckpt_step", "finetune", "exit_on_missing_checkpoint", "use_checkpoint_args"}) {
    const config::Setting& s = config::setting(key);
    const std::string given = config::text_of(r, s);
    if (given != s.default_text()) found.add(s, given, s.default_text());
  }
  return found.edits.empty() ? Broken{} : found;
}

Broken parallel_sizes_of_checkpoint(const Run& r) {
  const auto& c = r.checkpoint;
  if (!c.use_mp_args_from_checkpoint_args || c.use_checkpoint_args) return std::nullopt;
  return Finding{"--use-mp-args-from-checkpoint-args",
                 "needs --use-checkpoint-args",
                 "true",
                 {{"use_mp_args_from_checkpoint_args", "false"}},
                 "leave it out, or add --use-checkpoint-args"};
}

Broken override_iteration(const Run& r) {
  const auto& c = r.checkpoint;
  if (!c.override_ckpt_iteration || !c.finetune) return std::nullopt;
  return Finding{"--override-ckpt-iteration",
                 "must not be given with --finetune, whose iterations begin at 0",
                 text(*c.override_ckpt_iteration),
                 {{"override_ckpt_iteration", "unset"}},
                 "leave one of them out"};
}

constexpr Rule kData[] = {
    {"data-once", true, data_once, "mock_data=false", "Only one of them would be read.",
     "data_path data_args_path per_split_data_args_path"},
    {"train-data", true, train_data, "mock_data=false; valid_data_path=b",
     "There would be nothing to train on.", "valid_data_path test_data_path"},
    {"data-paths", false, data_paths, "mock_data=false; data_path=0.3 a b",
     "A blend is prefixes, or a weight in front of each."},
    {"split", false, split, "split=1,2,x", "Shares of a whole are numbers."},
    {"vocabulary", false, vocabulary, "vocab_size=0", "Embedding and output layer have a row for each token.",
     "tokenizer_type"},
    {"tokenizer-file", false, tokenizer_file, "tokenizer_type=SentencePieceTokenizer",
     "What the tokenizer knows stands in a file."},
    {"fim-data", false, fim_data,
     "fim_data=true; tokenizer_type=HuggingFaceTokenizer; tokenizer_model=starcoder",
     "There is no text to cut.", "mock_data sft model"},
    {"ambiguous-pads", false, ambiguous_pads,
     "allow_ambiguous_pad_tokens=true; sft=true; mock_data=false; data_path=a.jsonl; "
     "tokenizer_type=HuggingFaceTokenizer; tokenizer_model=llama-3",
     "Chats, BERT and T5 say by place which tokens have a loss.", "sft model"},
    {"hidden-tokens", false, hidden_tokens, "model=bert; calculate_per_token_loss=false; mask_prob=0.03",
     "A sample without hidden tokens has no loss.", "seq_length model"},
    {"fim-tokenizer", false, fim_tokenizer, "fim_data=true; mock_data=false; data_path=a",
     "A text is cut between characters.", "fim_data"},
    {"fim-rates", false, fim_rates,
     "fim_data=true; fim_rate=0; mock_data=false; data_path=a; tokenizer_type=HuggingFaceTokenizer; "
     "tokenizer_model=starcoder",
     "Without a share that is cut there is no fill-in-the-middle.", "fim_data"},
    {"sft-data", false, sft_data, "sft=true; tokenizer_type=HuggingFaceTokenizer; tokenizer_model=llama-3",
     "Made-up tokens have no answers.", "data_path"},
    {"sft-model", false, sft_model,
     "model=t5; encoder_num_layers=2; decoder_seq_length=8; sft=true; mock_data=false; data_path=a.jsonl; "
     "tokenizer_type=HuggingFaceTokenizer; tokenizer_model=t5",
     "Conversations are one text.", "model"},
    {"sft-tokenizer", false, sft_tokenizer, "sft=true; mock_data=false; data_path=a.jsonl",
     "Chat templates write special tokens into the text.", "sft"},
    {"sft-documents", false, sft_documents,
     "sft=true; mock_data=false; data_path=a.jsonl; tokenizer_type=HuggingFaceTokenizer; tokenizer_model=llama-3; "
     "reset_position_ids=true",
     "A sample of several conversations must hide them from each other; one of a single conversation has nothing to "
     "hide.",
     "sft"},
    {"sft-format", false, sft_format,
     "sft=true; mock_data=false; data_path=a.jsonl; tokenizer_type=HuggingFaceTokenizer; tokenizer_model=llama-3; "
     "chat_template=a.jinja; sft_tokenizer_prompt_format=identity",
     "Either decides how messages are written.", "sft chat_template"},
    {"retain-interval", true, retain, "save_interval=10; save_retain_interval=15",
     "Only steps that are saved can be retained.", "save_interval"},
    {"load-given", true, load_given, "ckpt_step=3", "There is no checkpoint that it could be about.",
     "load pretrained_checkpoint ckpt_step finetune exit_on_missing_checkpoint use_checkpoint_args"},
    {"checkpoint-sizes", true, parallel_sizes_of_checkpoint,
     "load=runs/a; use_mp_args_from_checkpoint_args=true",
     "Megatron takes parallel sizes only together with the model's settings.", "use_checkpoint_args"},
    {"override-iteration", true, override_iteration, "load=runs/a; finetune=true; override_ckpt_iteration=3",
     "Weights alone begin a run at iteration 0.", "finetune"},
};

}  // namespace

std::span<const Rule> data_rules() { return kData; }

}  // namespace colonnade::rules
