// Rules for data, tokenizer and checkpoints.
#include <algorithm>

#include "colonnade/config/data_flags.h"
#include "colonnade/config/schema.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool has_split_paths(const config::Data& d) {
  return !d.train_data_path.empty() || !d.valid_data_path.empty() || !d.test_data_path.empty();
}

Broken one_data_source(const Run& r) {
  const auto& d = r.data;
  const int files = (d.data_args_path.empty() ? 0 : 1) + (d.per_split_data_args_path.empty() ? 0 : 1);
  const int sources =
      (d.data_path.empty() ? 0 : 1) + (d.mock_data ? 1 : 0) + (has_split_paths(d) ? 1 : 0) + files;
  if (sources == 1) return std::nullopt;
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
      sources == 0 ? "--data-path or --mock-data" : "data",
      sources == 0
          ? "must be set, unless data paths are set per split or in a file"
          : "must come from exactly one of --data-path, paths per split (--train-data-path), a file with "
            "paths, and --mock-data",
      sources == 0 ? "none" : fmt::format("{} of them", sources),
      std::move(edits),
      sources == 0 ? "write --data-path PREFIX, or --mock-data for a test run" : "remove all but one",
      sources == 0};
}

Broken train_data(const Run& r) {
  const auto& d = r.data;
  if (!has_split_paths(d) || r.training.skip_train || !d.train_data_path.empty()) return std::nullopt;
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
    const auto fault = config::data_paths_error(*words);
    if (!fault) continue;
    std::string names;  // words that are no numbers: the blend without weights
    for (const std::string& word : *words)
      if (!config::number_of(word)) names += (names.empty() ? "" : " ") + word;
    return Finding{config::setting(key).flag, fault->rule, fault->got, {{key, names}}, fault->fix};
  }
  return std::nullopt;
}

Broken split(const Run& r) {
  const config::SplitWeights words = config::parse_split(r.data.split);
  if (words.fault.empty()) return std::nullopt;
  return Finding{"--split",
                 "must be one to three non-negative numbers with a sum above 0",
                 fmt::format("'{}' ({})", r.data.split, words.fault),
                 {{"split", "969,30,1"}},
                 "write for example --split 969,30,1"};
}

Broken vocabulary(const Run& r) {
  const bool has_file = !r.data.tokenizer_type.empty() && r.data.tokenizer_type != "NullTokenizer";
  if (r.model.vocab_size > 0 || has_file) return std::nullopt;
  return Finding{"--vocab-size",
                 "must be set if no tokenizer reads a vocabulary file",
                 text(r.model.vocab_size),
                 {{"vocab_size", "50257"}},
                 "write --vocab-size N (ids 0 to N-1), or --tokenizer-type and --tokenizer-model",
                 !r.data.mock_data};
}

Broken tokenizer_file(const Run& r) {
  const config::Data& d = r.data;
  const bool has_file = !d.tokenizer_type.empty() && d.tokenizer_type != "NullTokenizer";
  const bool has_parts = d.tokenizer_type == "GPT2BPETokenizer"
                             ? !d.vocab_file.empty() && !d.merge_file.empty()
                             : !d.vocab_file.empty();
  if (!has_file || !d.tokenizer_model.empty() || has_parts) return std::nullopt;
  return Finding{"--tokenizer-model",
                 fmt::format("must be set with --tokenizer-type {}", r.data.tokenizer_type),
                 "none",
                 {{"tokenizer_model", "tokenizer.model"}},
                 "write --tokenizer-model FILE"};
}

/// Fill-in-the-middle needs documents of text in data files.
Broken fim_data(const Run& r) {
  const config::Data& d = r.data;
  if (!d.fim.enabled || (!d.mock_data && !d.sft && r.model_type == "gpt")) return std::nullopt;
  return Finding{"--fim-data",
                 "requires a GPT model and data files of text",
                 d.mock_data ? "--mock-data"
                 : d.sft     ? "--sft"
                             : r.model_type,
                 {{"fim_data", "false"}},
                 "remove the flag"};
}

/// Permuted texts have other lengths than the sequences they were made of.
Broken fim_documents(const Run& r) {
  if (!r.data.fim.enabled || !r.data.inter_document_masking) return std::nullopt;
  return Finding{"--dataloader-inter-document-masking",
                 "is not supported with --fim-data",
                 "both",
                 {{"dataloader_inter_document_masking", "false"},
                  {"reset_attention_mask", "true"},
                  {"reset_position_ids", "true"}},
                 "write --reset-attention-mask --reset-position-ids"};
}

/// Samples of chats, BERT and T5 mask padding out of the loss by position.
Broken ambiguous_pads(const Run& r) {
  const config::Data& d = r.data;
  if (!d.allow_ambiguous_pad_tokens || (!d.sft && r.model_type == "gpt")) return std::nullopt;
  return Finding{"--allow-ambiguous-pad-tokens",
                 "requires a GPT model and plain text",
                 d.sft ? "--sft" : r.model_type,
                 {{"allow_ambiguous_pad_tokens", "false"}},
                 "remove the flag"};
}

/// mask_spans would mask less than one token of the longest sample.
Broken masked_tokens(const Run& r) {
  const bool bert = r.model_type == "bert";
  const std::int64_t most = r.training.seq_length - (bert ? 3 : 2);  // without CLS and SEP
  if ((!bert && r.model_type != "t5") || most < 2 || r.data.mask_prob * static_cast<double>(most) >= 1)
    return std::nullopt;
  std::int64_t percent = 1;
  while (static_cast<double>(percent) / 100 * static_cast<double>(most) < 1) ++percent;
  return Finding{"--mask-prob",
                 fmt::format("must mask at least one token of a --seq-length {} sample (1 / {})",
                             r.training.seq_length, most),
                 text(r.data.mask_prob),
                 {{"mask_prob", text(static_cast<double>(percent) / 100)}},
                 ""};
}

Broken fim_tokenizer(const Run& r) {
  const std::string& type = r.data.tokenizer_type;
  if (!r.data.fim.enabled || (!type.empty() && type != "NullTokenizer")) return std::nullopt;
  return Finding{"--tokenizer-type",
                 "must be one that reads text with --fim-data",
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
                 "requires files of chat messages",
                 "--mock-data",
                 {{"mock_data", "false"}, {"data_path", "chats.jsonl"}},
                 "write --data-path FILE.jsonl"};
}

Broken sft_model(const Run& r) {
  if (!r.data.sft || r.model_type == "gpt") return std::nullopt;
  return Finding{"--sft", "requires a GPT model", r.model_type, {{"sft", "false"}}, "remove the flag"};
}

Broken sft_tokenizer(const Run& r) {
  const std::string& type = r.data.tokenizer_type;
  if (!r.data.sft || type == "HuggingFaceTokenizer" || type == "SFTTokenizer") return std::nullopt;
  return Finding{"--tokenizer-type",
                 "must be HuggingFaceTokenizer or SFTTokenizer with --sft",
                 type.empty() ? "none" : type,
                 {{"tokenizer_type", "HuggingFaceTokenizer"}, {"tokenizer_model", "llama-3"}},
                 "write --tokenizer-type HuggingFaceTokenizer --tokenizer-model FOLDER",
                 type.empty(),
                 true};
}

/// Packed conversations restart positions and attention, both or neither.
Broken sft_packing(const Run& r) {
  const config::Data& d = r.data;
  const bool both = d.reset_position_ids == d.reset_attention_mask || d.inter_document_masking;
  if (!d.sft || (both && !d.eod_mask_loss)) return std::nullopt;
  Finding found{"", "", "", {}, "set both, or neither"};
  if (d.eod_mask_loss) {
    found.rule = "has no effect with --sft, where only answer tokens have a loss";
    found.fix = "remove the flag";
    found.add(config::setting("eod_mask_loss"), "true", "false");
    return found;
  }
  const bool has_positions = d.reset_position_ids;
  found.rule =
      fmt::format("must be set with --sft and --reset-{}", has_positions ? "position-ids" : "attention-mask");
  found.add(config::setting(has_positions ? "reset_attention_mask" : "reset_position_ids"), "unset", "true");
  return found;
}

Broken sft_format(const Run& r) {
  const config::Data& d = r.data;
  const std::string& format = d.sft_tokenizer_prompt_format;
  if (!d.sft || d.chat_template.empty() || format.empty() || format == "default") return std::nullopt;
  return Finding{"--chat-template",
                 "requires --sft-tokenizer-prompt-format default",
                 format,
                 {{"sft_tokenizer_prompt_format", "default"}},
                 "remove one of them"};
}

Broken retain_interval(const Run& r) {
  const auto& c = r.checkpoint;
  if (!c.save_retain_interval ||
      (c.save_interval && *c.save_interval > 0 && *c.save_retain_interval % *c.save_interval == 0))
    return std::nullopt;
  if (!c.save_interval) {
    return Finding{"--save-retain-interval",
                   "requires --save-interval",
                   text(*c.save_retain_interval),
                   {{"save_retain_interval", "unset"}},
                   "remove the flag"};
  }
  return Finding{"--save-retain-interval",
                 "must be a multiple of --save-interval",
                 fmt::format("{} and {}", *c.save_retain_interval, *c.save_interval),
                 {{"save_retain_interval",
                   text(round_up(*c.save_retain_interval, std::max<std::int64_t>(*c.save_interval, 1)))}},
                 ""};
}

Broken load_required(const Run& r) {
  if (!r.checkpoint.load.empty() || !r.checkpoint.pretrained_checkpoint.empty()) return std::nullopt;
  Finding found{"", "must be used with --load", "", {}, ""};
  for (const char* key : {"ckpt_step", "finetune", "exit_on_missing_checkpoint", "use_checkpoint_args"}) {
    const config::Setting& s = config::setting(key);
    const std::string given = config::text_of(r, s);
    if (given != s.default_text()) found.add(s, given, s.default_text());
  }
  found.fix = fmt::format("{}, or add --load DIR", removal(found));
  return found.edits.empty() ? Broken{} : found;
}

Broken parallel_sizes_of_checkpoint(const Run& r) {
  const auto& c = r.checkpoint;
  if (!c.use_mp_args_from_checkpoint_args || c.use_checkpoint_args) return std::nullopt;
  return Finding{"--use-mp-args-from-checkpoint-args",
                 "requires --use-checkpoint-args",
                 "true",
                 {{"use_mp_args_from_checkpoint_args", "false"}},
                 "remove the flag, or add --use-checkpoint-args"};
}

Broken override_iteration(const Run& r) {
  const auto& c = r.checkpoint;
  if (!c.override_ckpt_iteration || !c.finetune) return std::nullopt;
  return Finding{"--override-ckpt-iteration",
                 "is not supported with --finetune, which starts at iteration 0",
                 text(*c.override_ckpt_iteration),
                 {{"override_ckpt_iteration", "unset"}},
                 "remove one of them"};
}

constexpr Rule kData[] = {
    {"data-once", true, one_data_source, "mock_data=false", "Only one source of data can be read.",
     "data_path data_args_path per_split_data_args_path"},
    {"train-data", true, train_data, "mock_data=false; valid_data_path=b", "",
     "valid_data_path test_data_path"},
    {"data-paths", false, data_paths, "mock_data=false; data_path=0.3 a b",
     "A blend is a list of prefixes, with or without a weight before each."},
    {"split", false, split, "split=1,2,x",
     "The numbers are the shares of the train, validation and test splits."},
    {"vocabulary", false, vocabulary, "vocab_size=0", "Embedding and output layer have one row per token id.",
     "tokenizer_type"},
    {"tokenizer-file", false, tokenizer_file, "tokenizer_type=SentencePieceTokenizer",
     "These tokenizers read their vocabulary from a file."},
    {"fim-data", false, fim_data,
     "fim_data=true; tokenizer_type=HuggingFaceTokenizer; tokenizer_model=starcoder",
     "Fill-in-the-middle splits text documents; mock data, chats, BERT and T5 samples contain none.",
     "mock_data sft model"},
    {"ambiguous-pads", false, ambiguous_pads,
     "allow_ambiguous_pad_tokens=true; sft=true; mock_data=false; data_path=a.jsonl; "
     "tokenizer_type=HuggingFaceTokenizer; tokenizer_model=llama-3",
     "Chat, BERT and T5 samples mask padding by position, never by token id.", "sft model"},
    {"hidden-tokens", false, masked_tokens, "model=bert; calculate_per_token_loss=false; mask_prob=0.03",
     "A sample without masked tokens has no loss.", "seq_length model"},
    {"fim-tokenizer", false, fim_tokenizer, "fim_data=true; mock_data=false; data_path=a",
     "Fill-in-the-middle splits text between characters, so ids must be decoded to text and back.",
     "fim_data"},
    {"fim-documents", false, fim_documents,
     "fim_data=true; dataloader_inter_document_masking=true; mock_data=false; data_path=a; "
     "tokenizer_type=HuggingFaceTokenizer; tokenizer_model=starcoder",
     "Fill-in-the-middle changes the lengths of texts; ends of documents remain.", "fim_data"},
    {"fim-rates", false, fim_rates,
     "fim_data=true; fim_rate=0; mock_data=false; data_path=a; tokenizer_type=HuggingFaceTokenizer; "
     "tokenizer_model=starcoder",
     "A rate of 0 disables fill-in-the-middle.", "fim_data"},
    {"sft-data", false, sft_data, "sft=true; tokenizer_type=HuggingFaceTokenizer; tokenizer_model=llama-3",
     "Mock data has no conversations.", "data_path"},
    {"sft-model", false, sft_model,
     "model=t5; encoder_num_layers=2; decoder_seq_length=8; sft=true; mock_data=false; data_path=a.jsonl; "
     "tokenizer_type=HuggingFaceTokenizer; tokenizer_model=t5",
     "A conversation is one sequence for a decoder-only model.", "model"},
    {"sft-tokenizer", false, sft_tokenizer, "sft=true; mock_data=false; data_path=a.jsonl",
     "Chat templates write special tokens as text, which these tokenizers recognize.", "sft"},
    {"sft-documents", false, sft_packing,
     "sft=true; mock_data=false; data_path=a.jsonl; tokenizer_type=HuggingFaceTokenizer; "
     "tokenizer_model=llama-3; reset_position_ids=true",
     "Packed conversations must not attend to each other; with one conversation per sample neither flag is "
     "needed.",
     "sft"},
    {"sft-format", false, sft_format,
     "sft=true; mock_data=false; data_path=a.jsonl; tokenizer_type=HuggingFaceTokenizer; "
     "tokenizer_model=llama-3; chat_template=a.jinja; sft_tokenizer_prompt_format=identity",
     "Both define the chat template.", "sft chat_template"},
    {"retain-interval", true, retain_interval, "save_interval=10; save_retain_interval=15",
     "Only saved checkpoints can be retained.", "save_interval"},
    {"load-given", true, load_required, "ckpt_step=3", "These flags apply to the checkpoint of --load.",
     "load pretrained_checkpoint ckpt_step finetune exit_on_missing_checkpoint use_checkpoint_args"},
    {"checkpoint-sizes", true, parallel_sizes_of_checkpoint,
     "load=runs/a; use_mp_args_from_checkpoint_args=true",
     "Megatron reads parallel sizes only together with the model settings.", "use_checkpoint_args"},
    {"override-iteration", true, override_iteration, "load=runs/a; finetune=true; override_ckpt_iteration=3",
     "Fine-tuning loads weights only and starts at iteration 0.", "finetune"},
};

}  // namespace

std::span<const Rule> data_rules() { return kData; }

}  // namespace colonnade::rules
