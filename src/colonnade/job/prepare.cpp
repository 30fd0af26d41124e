// See prepare.h.
#include "colonnade/job/prepare.h"

#include <algorithm>
#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/chat_template/chat_template.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/load.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/dump.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/use.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/data/data_args.h"
#include "colonnade/data/samples/bert/bert_batches.h"
#include "colonnade/data/samples/gpt/fill_in_the_middle.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/data/samples/sft/sft_batches.h"
#include "colonnade/data/samples/t5/t5_batches.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/continued.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/job/foreign.h"
#include "colonnade/job/model_settings.h"
#include "colonnade/job/tokenizer_source.h"

namespace colonnade::job {
namespace {

/// What was to say what the model is could not be read: that its settings are missing is no fault of theirs.
void leave_model_unknown(config::Run& run) {
  for (const config::Setting& s : config::schema())
    if (says_what_the_model_is(s) && !run.given.contains(s.key)) run.at_fault.insert(s.key);
}

/// What is taken of a Hugging Face folder though its config.json does not say so; "" where nothing is.
std::string unnamed_head(const config::Run& run, const checkpoint::Source& source) {
  const nlohmann::json named = source.hf_config().value("architectures", nlohmann::json::array());
  if (!run.model.bert_binary_head || std::ranges::count(named, "BertForPreTraining") > 0) return "";
  return fmt::format(
      "{}: its tensors have a head for the order of sentences, which config.json does not name; it is taken "
      "(--bert-no-binary-head leaves it unread)",
      source.folder().string());
}

/// Takes out of a folder's `settings` the dropout that the command line or a file gives, unless
/// --use-checkpoint-args is: it belongs to the training, and another value is no contradiction. What is wrong
/// where the folder has two for one setting;
/// "" where nothing is.
std::string choose_dropout(const config::Run& run, const nlohmann::json& folder, const std::string& file,
                           std::map<std::string, std::string>& settings) {
  for (const char* key : {"hidden_dropout", "attention_dropout"})
    if (run.given.contains(key) && !config::checkpoint_wins(run, key)) settings.erase(key);
  if (run.given.contains("hidden_dropout") || settings.contains("hidden_dropout")) return "";
  return fmt::format(
      "{}: dropout of embeddings (embd_pdrop) and of layers (resid_pdrop) must be equal for a training; got {} and "
      "{}; give --hidden-dropout",
      file, folder.value("embd_pdrop", 0.1), folder.value("resid_pdrop", 0.1));
}

/// Which dropout a training that begins with a folder has, and who says so.
std::string dropout_note(const config::Run& run, const std::string& file) {
  const auto from = [&](const char* key) {
    const auto given = run.given.find(key);
    return fmt::format("{} {} from {}", config::setting(key).flag, config::text_of(run, config::setting(key)),
                       given == run.given.end() ? file : given->second);
  };
  return fmt::format("dropout: {}, {}", from("hidden_dropout"), from("attention_dropout"));
}

/// Weights of a run of ours with which another training begins keep their dropout, as those of a folder do.
void take_dropout(config::Run& run, const checkpoint::Source& source) {
  const nlohmann::json settings = source.state().value("settings", nlohmann::json::object());
  for (const char* key : {"hidden_dropout", "attention_dropout"})
    if (settings.contains(key) && (!run.given.contains(key) || config::checkpoint_wins(run, key)))
      config::overrule(run, key, settings.at(key).get<std::string>(), source.folder().string());
  run.notes.push_back(dropout_note(run, source.folder().string()));
}

/// --use-mp-args-from-checkpoint-args: the parallel sizes that Megatron takes. Layers of a virtual stage that
/// are given decide the number of virtual stages, as in Megatron.
void take_parallel_sizes(config::Run& run, const checkpoint::Source& source) {
  if (!run.checkpoint.use_checkpoint_args || !run.checkpoint.use_mp_args_from_checkpoint_args) return;
  const std::string folder = source.folder().string();
  const nlohmann::json settings = source.state().is_object()
                                      ? source.state().value("settings", nlohmann::json::object())
                                      : nlohmann::json();
  if (!settings.is_object())
    return run.notes.push_back(fmt::format(
        "--use-mp-args-from-checkpoint-args: {} holds no parallel sizes; those given stay", folder));
  for (const char* key : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                          "num_virtual_stages_per_pipeline_rank", "expert_model_parallel_size"}) {
    const bool layers_decide = key == std::string_view("num_virtual_stages_per_pipeline_rank") &&
                               run.given.contains("num_layers_per_virtual_pipeline_stage");
    if (settings.contains(key) && !layers_decide)
      config::overrule(run, key, settings.at(key).get<std::string>(), folder);
  }
}

void fill_from(config::Run& run, const checkpoint::Source& source, rules::Purpose purpose,
               std::vector<std::string>& faults) {
  std::map<std::string, std::string> settings;
  try {
    settings = model_settings(run, source);
    if (!source.state().is_object())
      if (std::string note = untie_stored_output(settings, source); !note.empty())
        run.notes.push_back(std::move(note));
  } catch (const ConfigError& e) {
    faults.emplace_back(e.what());
    return leave_model_unknown(run);
  }
  try {
    const bool ours = source.state().is_object();
    const std::string file = (source.folder() / "config.json").string();
    std::string of_dropout = ours ? "" : choose_dropout(run, source.hf_config(), file, settings);
    if (!of_dropout.empty() && purpose == rules::Purpose::kTrain) faults.push_back(std::move(of_dropout));
    if (purpose != rules::Purpose::kModel && run.given.contains("moe_router_load_balancing_type"))
      settings.erase("moe_router_load_balancing_type");  // a training may balance otherwise than the last one
    const auto head = settings.find("bert_binary_head");
    if (!ours && head != settings.end() && config::typed(run, head->first) && !run.model.bert_binary_head)
      head->second = "false";  // that of the folder is left unread
    config::fill(run, settings, ours ? source.folder().string() : file);
    if (std::string note = ours ? "" : unnamed_head(run, source); !note.empty())
      run.notes.push_back(std::move(note));
    if (purpose == rules::Purpose::kTrain || purpose == rules::Purpose::kPlan)
      take_parallel_sizes(run, source);
  } catch (const ConfigError& e) {
    faults.emplace_back(e.what());
  }
}

/// What the checkpoint that weights come from says besides the model: a run that goes on keeps its settings,
/// text needs its tokenizer.
void take_over(config::Run& run, const checkpoint::Source& source, rules::Purpose purpose,
               std::vector<std::string>& faults) {
  if (purpose != rules::Purpose::kModel) {
    if (run.checkpoint.finetune) {
      adopt_tokenizer(run, source);
      take_dropout(run, source);
    } else {
      keep_settings(run, source.state(), source.folder().string(), faults);
    }
    return;
  }
  std::string fault = tokenizer_fault(run, source.state(), source.folder().string());
  if (!fault.empty()) faults.push_back(std::move(fault));
}

constexpr auto kSizes = checkpoint::Check::kSizes;  // the bytes are checked when they are loaded

/// The checkpoint of --load, whose settings are taken over; nothing, and perhaps a fault, without one.
std::optional<checkpoint::Found> take_loaded(config::Run& run, rules::Purpose purpose,
                                             std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  if (c.load.empty()) return std::nullopt;
  std::string fault = closed_load_fault(run);
  if (fault.empty()) {
    if (auto found = checkpoint::find_checkpoint(c.load, c.ckpt_step, {}, kSizes)) {
      const auto source = checkpoint::Source::open_native(found->folder);
      if (purpose == rules::Purpose::kPlan) require_same_builder(source, /*of_settings=*/true);
      fill_from(run, source, purpose, faults);
      take_over(run, source, purpose, faults);
      return found;
    }
    // A launch line that says all itself needs nothing of --load.
    const bool trains = purpose == rules::Purpose::kTrain;
    const bool needs_model = (purpose == rules::Purpose::kPlan || (trains && c.use_checkpoint_args)) &&
                             !run.given.contains("num_layers");
    if (trains || needs_model) fault = load_fault(run);
    if (fault.empty() && needs_model && c.pretrained_checkpoint.empty())
      fault = fmt::format(
          "--load must hold the checkpoint whose model is {}; got none in {}; correct the path, or give "
          "the model's settings (--num-layers, ...)",
          trains ? "trained" : "planned", c.load);
  }
  if (fault.empty() && c.exit_on_missing_checkpoint)
    fault = fmt::format(
        "--load: with --exit-on-missing-checkpoint a checkpoint must be there; got none in {}; correct the "
        "folder",
        c.load);
  if (!fault.empty()) {
    faults.push_back(std::move(fault));
    leave_model_unknown(run);
  }
  return std::nullopt;
}

/// The folder of --save that config.yaml of a run folder names is that folder; a moved or copied one would go
/// on in its old place, or begin again there.
std::string moved_run_fault(const config::Run& run) {
  namespace fs = std::filesystem;
  const auto from = run.given.find("save");
  if (from == run.given.end() || run.checkpoint.save.empty()) return "";
  const fs::path file = from->second.substr(0, from->second.rfind(':'));
  const fs::path beside = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code absent;
  if (file.filename() != "config.yaml" || checkpoint::step_folders(beside / "checkpoints").empty() ||
      fs::equivalent(beside, run.checkpoint.save, absent))
    return "";
  return fmt::format(
      "--save: config.yaml of a run folder must name that folder; got {} in {}, which was moved or copied; add "
      "--save {} --load {} to go on there, or give both another folder",
      run.checkpoint.save, file.string(), beside.string(), beside.string());
}

/// A run that does not go on from the checkpoints in its folder would cut off the metrics that belong to
/// them and mix its own checkpoints with theirs. Nor are they mixed with Megatron's.
void guard_other_run(const config::Run& run, const std::optional<checkpoint::Found>& loaded,
                     std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  if (c.save.empty()) return;
  if (std::string fault = moved_run_fault(run); !fault.empty()) return faults.push_back(std::move(fault));
  const std::filesystem::path checkpoints = std::filesystem::path(c.save) / "checkpoints";
  const auto steps = checkpoint::step_folders(checkpoints);
  std::error_code absent;
  const bool goes_on =
      loaded && !c.finetune && std::filesystem::equivalent(loaded->folder.parent_path(), checkpoints, absent);
  if (goes_on) return;
  if (steps.empty()) {
    std::string fault = save_fault(run);
    if (!fault.empty()) faults.push_back(std::move(fault));
    return;
  }
  const std::string load = c.load.empty() ? "no --load" : "--load " + c.load;
  const std::string way = c.load.empty() ? "add --load " + c.save + " to this command and keep --save"
                                         : "write --load " + c.save + " and keep --save";
  faults.push_back(fmt::format(
      "--save must name a new folder, or the one of the run that --load continues; got {} with checkpoints "
      "up to step {} and {}{}; {}{} to go on after them, or choose another folder",
      c.save, steps.rbegin()->first, load, c.finetune ? " --finetune" : "", way,
      c.finetune ? ", without --finetune," : ""));
}

}  // namespace

std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const config::Run& run) {
  if (run.data.tokenizer_type.empty()) return nullptr;
  const config::Data& d = run.data;
  // Megatron's scripts give it files by habit; a note says that they do nothing.
  if (d.tokenizer_type == "NullTokenizer")
    return tokenizers::make_tokenizer({.type = d.tokenizer_type, .vocab_size = run.model.vocab_size});
  return tokenizers::make_tokenizer(
      {.type = d.tokenizer_type,
       .model = d.tokenizer_model,
       .vocab_size = tokenizers::takes_vocab_size(d.tokenizer_type) ? run.model.vocab_size : 0,
       .vocab_file = d.vocab_file,
       .merge_file = d.merge_file,
       .special_in_documents = d.tokenizer_hf_include_special_tokens,
       .tiktoken_pattern = d.tiktoken_pattern,
       .tiktoken_num_special = d.tiktoken_num_special_tokens});
}

namespace {

/// A pad that ends documents too would take their loss away: no token is the pad then, as in Megatron.
std::int64_t pad_of(const config::Run& run, const tokenizers::Tokenizer& tokenizer) {
  const tokenizers::SpecialIds special = tokenizer.special();
  const bool ambiguous = special.pad >= 0 && (special.pad == special.eos || special.pad == tokenizer.eod());
  if (!ambiguous) return special.pad;
  if (run.data.allow_ambiguous_pad_tokens)
    log::warning(
        "--allow-ambiguous-pad-tokens: the tokenizer's pad {} is its end of text too, which has no loss now",
        special.pad);
  return run.data.allow_ambiguous_pad_tokens ? special.pad : -1;
}

}  // namespace

data::TokenIds token_ids(const config::Run& run, const tokenizers::Tokenizer* tokenizer) {
  data::TokenIds ids{.vocab_size = run.model.vocab_size};
  if (tokenizer != nullptr) {
    ids.eod = tokenizer->eod();
    ids.pad = pad_of(run, *tokenizer);
  }
  if (run.data.fim.enabled) ids.tokenizer = tokenizer_of(run);
  return ids;
}

data::Splits open_batches(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                          const data::Wanted& wanted) {
  if (run.model.has_encoder())
    return data::open_t5_batches(run.data, run.training,
                                 data::t5_ids(tokenizer, run.model.vocab_size, run.data.vocab_extra_ids),
                                 wanted);
  if (run.model.bidirectional)
    return data::open_bert_batches(run.data, run.training, data::bert_ids(tokenizer, run.model.vocab_size),
                                   run.model.bert_binary_head, wanted);
  if (run.data.sft) {
    COL_CHECK(tokenizer != nullptr, "open_batches: --sft needs a tokenizer; got none; give --tokenizer-type");
    return data::open_sft_batches(run.data, run.training, *tokenizer, run.model.vocab_size, wanted);
  }
  return data::open_gpt_batches(run.data, run.training, token_ids(run, tokenizer), wanted);
}

namespace {

/// Of the tokenizer, with the sentinels that lie behind its ids.
std::int64_t vocabulary(const config::Run& run, const tokenizers::Tokenizer& tokenizer) {
  if (run.family != "t5") return tokenizer.vocab_size();
  const data::T5Ids ids = data::t5_ids(&tokenizer, 0, run.data.vocab_extra_ids);
  return std::max(tokenizer.vocab_size(), std::ranges::max(ids.sentinels) + 1);
}

bool begins_with_weights(const config::Run& run) {
  return !run.checkpoint.load.empty() || !run.checkpoint.pretrained_checkpoint.empty();
}

}  // namespace

void check_tokenizer(config::Run& run, std::vector<std::string>& faults) {
  if (run.at_fault.contains("vocab_size")) return;
  try {
    const auto tokenizer = tokenizer_of(run);
    const config::Data& d = run.data;
    if (d.fim.enabled && tokenizer && d.tokenizer_type != "NullTokenizer")
      (void)data::fim_rules(d.fim, *tokenizer);
    if (d.sft && tokenizer)
      chat_template::read_template({d.tokenizer_model, d.chat_template, d.sft_tokenizer_prompt_format});
    if (tokenizer && run.model.vocab_size == 0) run.model.vocab_size = vocabulary(run, *tokenizer);
    if (tokenizer && tokenizer->vocab_size() > run.model.vocab_size && begins_with_weights(run) &&
        tokenizer->base_vocab_size() <= run.model.vocab_size)
      run.notes.push_back(
          fmt::format("tokenizer: ids from {} to {} are added tokens for which the model has no embeddings; "
                      "texts with them are rejected",
                      run.model.vocab_size, tokenizer->vocab_size() - 1));
    else if (tokenizer && tokenizer->vocab_size() > run.model.vocab_size)
      faults.push_back(
          fmt::format("tokenizer: its vocabulary must fit the model's; got {} pieces in {} and --vocab-size "
                      "{}; give another tokenizer by --tokenizer-type and --tokenizer-model",
                      tokenizer->vocab_size(), run.data.tokenizer_model, run.model.vocab_size));
  } catch (const ConfigError& e) {
    faults.emplace_back(e.what());
  }
}

namespace {

/// Puts the words of files with data paths where those of the command line stand, so that a run keeps them.
void read_data_args(config::Run& run, std::vector<std::string>& faults) {
  try {
    config::Data read = data::with_data_args(run.data);
    const std::string file =
        run.data.data_args_path.empty() ? run.data.per_split_data_args_path : run.data.data_args_path;
    const auto mark = [&](const char* key, const auto& was, const auto& is) {
      if (was != is) run.given[key] = file;
    };
    mark("data_path", run.data.data_path, read.data_path);
    mark("train_data_path", run.data.train_data_path, read.train_data_path);
    mark("valid_data_path", run.data.valid_data_path, read.valid_data_path);
    mark("test_data_path", run.data.test_data_path, read.test_data_path);
    run.data = std::move(read);
  } catch (const ConfigError& e) {
    faults.emplace_back(e.what());
    for (const char* key : {"data_path", "train_data_path", "valid_data_path", "test_data_path"})
      run.at_fault.insert(key);
  }
}

/// Whether all that decides samples was given, as config.yaml of a run folder does: a checkpoint, which may
/// be gone by now, has nothing to add.
bool says_all_of_samples(const config::Run& run) {
  return std::ranges::all_of(config::schema(), [&](const config::Setting& s) {
    const bool decides = s.cls == config::Class::kImplemented && s.get != nullptr && !s.nullable &&
                         config::reads(config::Use::kInspect, s);
    return !decides || run.given.contains(s.key);
  });
}

/// check_tokenizer. A tokenizer that nobody has named may be one that the run does not need.
void check_own_or_adopted(config::Run& run, std::vector<std::string>& faults) {
  try {
    check_tokenizer(run, faults);
  } catch (const DataError& error) {
    if (names_tokenizer(run)) throw;
    throw DataError(
        fmt::format("{}; or name another tokenizer: --tokenizer-type and --tokenizer-model, or "
                    "--tokenizer-type NullTokenizer for ids alone",
                    error.what()));
  }
}

/// The initial weights of --pretrained-checkpoint: they say what the model is, and the dropout and the
/// tokenizer that nothing else names.
void take_pretrained(config::Run& run, rules::Purpose purpose, std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  const auto step = c.load.empty() ? c.ckpt_step : std::nullopt;
  const auto source = convert::open_weights(c.pretrained_checkpoint, step, {}, kSizes);
  fill_from(run, source, purpose, faults);
  if (purpose == rules::Purpose::kModel) return take_over(run, source, purpose, faults);
  adopt_tokenizer(run, source);
  if (purpose != rules::Purpose::kTrain) return;
  if (source.state().is_object())
    take_dropout(run, source);
  else
    run.notes.push_back(dropout_note(run, (source.folder() / "config.json").string()));
}

}  // namespace

void prepare(config::Run& run, rules::Purpose purpose, std::vector<std::string> faults) {
  const config::Checkpoint& c = run.checkpoint;
  read_data_args(run, faults);
  const bool asks = purpose != rules::Purpose::kData || !says_all_of_samples(run);
  // A run that goes on has all in its checkpoint: what it began with may be gone by now.
  const auto loaded = asks ? take_loaded(run, purpose, faults) : std::nullopt;
  if (asks && !loaded && !c.pretrained_checkpoint.empty()) take_pretrained(run, purpose, faults);
  if (purpose == rules::Purpose::kTrain) guard_other_run(run, loaded, faults);
  check_own_or_adopted(run, faults);
  config::derive(run);
  rules::require(run, purpose, std::move(faults));
}

namespace {

/// What describes the model of a checkpoint: of a Hugging Face folder without all of its weights config.json
/// alone.
checkpoint::Source description(const std::filesystem::path& folder, std::optional<std::int64_t> step) {
  std::error_code absent;
  const auto has = [&](const char* file) { return std::filesystem::exists(folder / file, absent); };
  if (has("manifest.json") || !has("config.json")) return convert::open_weights(folder, step, {}, kSizes);
  try {
    return convert::open_hugging_face(folder);
  } catch (const DataError&) {
    return checkpoint::Source::open_config(folder);
  }
}

}  // namespace

void describe_model(config::Run& run, std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  if (!take_loaded(run, rules::Purpose::kPlan, faults) && !c.pretrained_checkpoint.empty()) {
    const auto source = description(c.pretrained_checkpoint, c.load.empty() ? c.ckpt_step : std::nullopt);
    require_same_builder(source, /*of_settings=*/true);
    fill_from(run, source, rules::Purpose::kPlan, faults);
    if (source.state().is_object()) take_dropout(run, source);
  }
}

}  // namespace colonnade::job
