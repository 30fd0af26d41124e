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
#include "colonnade/config/stacks.h"
#include "colonnade/config/use.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/convert/open.h"
#include "colonnade/data/data_args.h"
#include "colonnade/data/samples/bert/bert_batches.h"
#include "colonnade/data/samples/gpt/fill_in_the_middle.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/data/samples/sft/sft_batches.h"
#include "colonnade/data/samples/t5/t5_batches.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/folder_checks.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/job/model_settings.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/job/tokenizer_source.h"
#include "colonnade/job/upcycling.h"
#include "colonnade/models/hf/export_class.h"
#include "colonnade/models/hf/names.h"

namespace colonnade::job {
namespace {

/// Marks the model settings as faulty when they could not be read, so that no rule reports them as missing.
void mark_model_unknown(config::Run& run) {
  for (const config::Setting& s : config::schema())
    if (is_model_setting(s) && !run.given.contains(s.key)) run.invalid_keys.insert(s.key);
}

/// Note on a head that is read though config.json does not name it; "" where there is none.
std::string unnamed_head_note(const config::Run& run, const checkpoint::CheckpointReader& source) {
  const nlohmann::json named = source.hf_config().value("architectures", nlohmann::json::array());
  if (!run.model.bert_binary_head || std::ranges::count(named, "BertForPreTraining") > 0) return "";
  return fmt::format(
      "{}: its tensors include a sentence-order head, which config.json does not name; it is read "
      "(--bert-no-binary-head ignores it)",
      source.folder().string());
}

/// Removes from a folder's `settings` the dropout that the command line or a file gives, unless
/// --use-checkpoint-args is given: dropout belongs to training, so another value is no conflict. Returns a
/// fault where the folder has two values for one setting, "" otherwise.
std::string choose_dropout(const config::Run& run, const nlohmann::json& folder, const std::string& file,
                           std::map<std::string, std::string>& settings) {
  for (const char* key : {"hidden_dropout", "attention_dropout"})
    if (run.given.contains(key) && !config::checkpoint_wins(run, key)) settings.erase(key);
  if (run.given.contains("hidden_dropout") || settings.contains("hidden_dropout")) return "";
  return fmt::format(
      "{}: dropout of embeddings (embd_pdrop) and of layers (resid_pdrop) must be equal for training; got {} and {}; "
      "set --hidden-dropout",
      file, folder.value("embd_pdrop", 0.1), folder.value("resid_pdrop", 0.1));
}

/// Note on the dropout of a training run that starts from a folder, and its source.
std::string dropout_note(const config::Run& run, const std::string& file) {
  const auto from = [&](const char* key) {
    const auto given = run.given.find(key);
    return fmt::format("{} {} from {}", config::setting(key).flag, config::text_of(run, config::setting(key)),
                       given == run.given.end() ? file : given->second);
  };
  return fmt::format("dropout: {}, {}", from("hidden_dropout"), from("attention_dropout"));
}

/// Adopts the dropout of the checkpoint whose weights another training run starts from.
void adopt_dropout(config::Run& run, const checkpoint::CheckpointReader& source) {
  const nlohmann::json settings = source.state().value("settings", nlohmann::json::object());
  for (const char* key : {"hidden_dropout", "attention_dropout"})
    if (settings.contains(key) && (!run.given.contains(key) || config::checkpoint_wins(run, key)))
      config::override_from_checkpoint(run, key, settings.at(key).get<std::string>(),
                                       source.folder().string());
  run.notes.push_back(dropout_note(run, source.folder().string()));
}

/// --use-mp-args-from-checkpoint-args: adopts the parallel sizes that Megatron adopts. A given
/// --num-layers-per-virtual-pipeline-stage decides the number of virtual stages, as in Megatron.
void adopt_parallel_sizes(config::Run& run, const checkpoint::CheckpointReader& source) {
  if (!run.checkpoint.use_checkpoint_args || !run.checkpoint.use_mp_args_from_checkpoint_args) return;
  const std::string folder = source.folder().string();
  const nlohmann::json settings = source.state().is_object()
                                      ? source.state().value("settings", nlohmann::json::object())
                                      : nlohmann::json();
  if (!settings.is_object())
    return run.notes.push_back(fmt::format(
        "--use-mp-args-from-checkpoint-args: {} holds no parallel sizes; the given ones are used", folder));
  for (const char* key : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                          "num_virtual_stages_per_pipeline_rank", "expert_model_parallel_size"}) {
    const bool layers_decide = key == std::string_view("num_virtual_stages_per_pipeline_rank") &&
                               run.given.contains("num_layers_per_virtual_pipeline_stage");
    if (settings.contains(key) && !layers_decide)
      config::override_from_checkpoint(run, key, settings.at(key).get<std::string>(), folder);
  }
}

/// A checkpoint of Megatron has a padded vocabulary: a given --vocab-size without the padding is no conflict.
void adopt_padded_vocabulary(config::Run& run, const checkpoint::CheckpointReader& source,
                             const std::map<std::string, std::string>& settings) {
  const auto unpadded =
      source.state().is_object()
          ? source.state().value(nlohmann::json::json_pointer("/model/unpadded_vocab_size"), std::int64_t{0})
          : 0;
  if (unpadded > 0 && run.given.contains("vocab_size") && run.model.vocab_size == unpadded)
    config::override_from_checkpoint(run, "vocab_size", settings.at("vocab_size"), source.folder().string());
}

void fill_from(config::Run& run, const checkpoint::CheckpointReader& source, rules::Purpose purpose,
               std::vector<std::string>& faults) {
  std::map<std::string, std::string> settings;
  try {
    settings = model_settings(run, source);
    if (purpose != rules::Purpose::kModel) adapt_to_upcycling(run, source, settings);
    if (!source.state().is_object())
      if (std::string note = untie_stored_output(settings, source); !note.empty())
        run.notes.push_back(std::move(note));
  } catch (const ConfigError& e) {
    faults.emplace_back(e.what());
    return mark_model_unknown(run);
  }
  try {
    const bool ours = source.state().is_object();
    const std::string file = (source.folder() / "config.json").string();
    std::string dropout_fault = ours ? "" : choose_dropout(run, source.hf_config(), file, settings);
    if (!dropout_fault.empty() && purpose == rules::Purpose::kTrain)
      faults.push_back(std::move(dropout_fault));
    if (purpose != rules::Purpose::kModel && run.given.contains("moe_router_load_balancing_type"))
      settings.erase("moe_router_load_balancing_type");  // training may use another kind than the last run
    const auto head = settings.find("bert_binary_head");
    if (!ours && head != settings.end() && config::is_from_command_line(run, head->first) &&
        !run.model.bert_binary_head)
      head->second = "false";  // the folder's head is not read
    adopt_padded_vocabulary(run, source, settings);
    config::fill(run, settings, ours ? source.folder().string() : file);
    if (std::string note = ours ? "" : unnamed_head_note(run, source); !note.empty())
      run.notes.push_back(std::move(note));
    if (purpose == rules::Purpose::kTrain || purpose == rules::Purpose::kPlan)
      adopt_parallel_sizes(run, source);
  } catch (const ConfigError& e) {
    faults.emplace_back(e.what());
  }
}

/// Adopts a checkpoint's settings besides the model: all that a resumed run keeps, and the tokenizer.
void adopt_run_settings(config::Run& run, const checkpoint::CheckpointReader& source, rules::Purpose purpose,
                        std::vector<std::string>& faults) {
  if (purpose != rules::Purpose::kModel) {
    if (run.checkpoint.finetune || upcycles(run, source)) {
      adopt_tokenizer(run, source);
      adopt_dropout(run, source);
    } else {
      resume_settings(run, source.state(), source.folder().string(), faults);
    }
    return;
  }
  std::string fault = tokenizer_fault(run, source.state(), source.folder().string());
  if (!fault.empty()) faults.push_back(std::move(fault));
}

constexpr auto kSizes = checkpoint::Check::kSizes;  // checksums are verified when tensors are loaded

/// Finds the checkpoint of --load and adopts its settings; returns nothing without one, and may add a fault.
std::optional<checkpoint::CheckpointReader> adopt_loaded(config::Run& run, rules::Purpose purpose,
                                                         std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  if (c.load.empty()) return std::nullopt;
  std::string fault = unreadable_load_fault(run);
  if (fault.empty()) {
    if (auto source = convert::find_run(c.load, c.ckpt_step, {}, kSizes)) {
      if (purpose == rules::Purpose::kPlan) require_same_builder(*source, /*from_settings=*/true);
      fill_from(run, *source, purpose, faults);
      adopt_run_settings(run, *source, purpose, faults);
      return source;
    }
    // A command line that gives every model setting does not need --load.
    const bool trains = purpose == rules::Purpose::kTrain;
    const bool needs_model = (purpose == rules::Purpose::kPlan || (trains && c.use_checkpoint_args)) &&
                             !run.given.contains("num_layers");
    if (trains || needs_model) fault = load_fault(run);
    if (fault.empty() && needs_model && c.pretrained_checkpoint.empty())
      fault = fmt::format(
          "--load must contain a checkpoint of the model to be {}; got none in {}; correct the path, or "
          "give the model's settings (--num-layers, ...)",
          trains ? "trained" : "planned", c.load);
  }
  if (fault.empty() && c.exit_on_missing_checkpoint)
    fault = fmt::format(
        "--load with --exit-on-missing-checkpoint must hold a checkpoint; got none in {}; correct the folder",
        c.load);
  if (!fault.empty()) {
    faults.push_back(std::move(fault));
    mark_model_unknown(run);
  }
  return std::nullopt;
}

/// Fault of a --save from a run folder's config.yaml that names another folder: a moved or copied run would
/// resume in its old folder, or start from scratch there.
std::string moved_run_fault(const config::Run& run) {
  namespace fs = std::filesystem;
  const auto from = run.given.find("save");
  if (from == run.given.end() || run.checkpoint.save.empty()) return "";
  const fs::path file = from->second.substr(0, from->second.rfind(':'));
  const fs::path run_folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code absent;
  if (file.filename() != "config.yaml" || checkpoint::step_folders(run_folder / "checkpoints").empty() ||
      fs::equivalent(run_folder, run.checkpoint.save, absent))
    return "";
  return fmt::format(
      "--save in the config.yaml of a run folder must name that folder; got {} in {}, which was moved or copied; to "
      "resume there, add --save {} --load {}; otherwise give both another folder",
      run.checkpoint.save, file.string(), run_folder.string(), run_folder.string());
}

/// Rejects a --save folder with checkpoints that this run does not resume: it would truncate their metrics
/// and mix its checkpoints with theirs. Folders of Megatron are rejected too.
void check_save_folder(const config::Run& run, const std::optional<checkpoint::CheckpointReader>& loaded,
                       std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  if (c.save.empty()) return;
  if (std::string fault = moved_run_fault(run); !fault.empty()) return faults.push_back(std::move(fault));
  const std::filesystem::path checkpoints = std::filesystem::path(c.save) / "checkpoints";
  const auto steps = checkpoint::step_folders(checkpoints);
  std::error_code absent;
  if (loaded && run.model.moe.use_upcycling && upcycles(run, *loaded) &&
      std::filesystem::equivalent(loaded->folder().parent_path(), checkpoints, absent))
    return faults.push_back(fmt::format(
        "--save must not be the folder of the dense run with --moe-use-upcycling; got {} for --save and --load; "
        "choose another folder for --save [upcycling-save]",
        c.save));
  const auto is_loaded_from = [&](const std::filesystem::path& folder) {
    return loaded && std::filesystem::equivalent(loaded->folder().parent_path(), folder, absent);
  };
  // A run may continue in a folder of Megatron's checkpoints, whose files stay.
  if (!c.finetune && (is_loaded_from(checkpoints) || is_loaded_from(c.save))) return;
  if (steps.empty()) {
    std::string fault = save_fault(run);
    if (!fault.empty()) faults.push_back(std::move(fault));
    return;
  }
  const std::string load = c.load.empty() ? "no --load" : "--load " + c.load;
  const std::string fix = c.load.empty() ? "add --load " + c.save + " to this command and keep --save"
                                         : "write --load " + c.save + " and keep --save";
  faults.push_back(fmt::format(
      "--save must name a new folder, or the one of the run that --load resumes; got {} with checkpoints up to step "
      "{} and {}{}; {}{} to resume after them, or choose another folder",
      c.save, steps.rbegin()->first, load, c.finetune ? " --finetune" : "", fix,
      c.finetune ? ", without --finetune," : ""));
}

}  // namespace

std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const config::Run& run) {
  if (run.data.tokenizer_type.empty()) return nullptr;
  const config::Data& d = run.data;
  // Megatron's scripts often set file flags too; a note says that they have no effect.
  if (d.tokenizer_type == "NullTokenizer")
    return tokenizers::make_tokenizer({.type = d.tokenizer_type, .vocab_size = run.model.vocab_size});
  return tokenizers::make_tokenizer(
      {.type = d.tokenizer_type,
       .model = d.tokenizer_model,
       .vocab_size = tokenizers::accepts_vocab_size(d.tokenizer_type) ? run.model.vocab_size : 0,
       .vocab_file = d.vocab_file,
       .merge_file = d.merge_file,
       .special_in_documents = d.tokenizer_hf_include_special_tokens,
       .tiktoken_pattern = d.tiktoken_pattern,
       .tiktoken_num_special = d.tiktoken_num_special_tokens});
}

namespace {

/// Id of the padding token. A pad that also ends documents would take the loss from their ends, so then there
/// is none, as in Megatron.
std::int64_t pad_id(const config::Run& run, const tokenizers::Tokenizer& tokenizer) {
  const tokenizers::SpecialIds special = tokenizer.special();
  const bool ambiguous = special.pad >= 0 && (special.pad == special.eos || special.pad == tokenizer.eod());
  if (!ambiguous) return special.pad;
  if (run.data.allow_ambiguous_pad_tokens)
    log::warning(
        "--allow-ambiguous-pad-tokens: the tokenizer's pad {} is also its end of text, which now has no loss",
        special.pad);
  return run.data.allow_ambiguous_pad_tokens ? special.pad : -1;
}

}  // namespace

data::TokenIds token_ids(const config::Run& run, const tokenizers::Tokenizer* tokenizer) {
  data::TokenIds ids{.vocab_size = run.model.vocab_size};
  if (tokenizer != nullptr) {
    ids.eod = tokenizer->eod();
    ids.pad = pad_id(run, *tokenizer);
  }
  if (run.data.fim.enabled) ids.tokenizer = tokenizer_of(run);
  return ids;
}

data::Splits open_batches(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                          const data::DataRequest& wanted) {
  if (config::has_several_stacks(run.model))
    return data::open_t5_batches(run.data, run.training,
                                 data::t5_ids(tokenizer, run.model.vocab_size, run.data.vocab_extra_ids),
                                 wanted);
  if (run.model.bidirectional)
    return data::open_bert_batches(run.data, run.training, data::bert_ids(tokenizer, run.model.vocab_size),
                                   run.model.bert_binary_head, wanted);
  if (run.data.sft) {
    COL_CHECK(tokenizer != nullptr,
              "open_batches: --sft requires a tokenizer; got none; set --tokenizer-type");
    return data::open_sft_batches(run.data, run.training, *tokenizer, run.model.vocab_size, wanted);
  }
  return data::open_gpt_batches(run.data, run.training, token_ids(run, tokenizer), wanted);
}

namespace {

/// Vocabulary size of the tokenizer, with T5's sentinels, whose ids follow its own.
std::int64_t vocab_size_of(const config::Run& run, const tokenizers::Tokenizer& tokenizer) {
  if (run.model_type != "t5") return tokenizer.vocab_size();
  const data::T5Ids ids = data::t5_ids(&tokenizer, 0, run.data.vocab_extra_ids);
  return std::max(tokenizer.vocab_size(), std::ranges::max(ids.sentinels) + 1);
}

bool starts_from_weights(const config::Run& run) {
  return !run.checkpoint.load.empty() || !run.checkpoint.pretrained_checkpoint.empty();
}

}  // namespace

void check_tokenizer(config::Run& run, std::vector<std::string>& faults) {
  if (run.invalid_keys.contains("vocab_size")) return;
  try {
    const auto tokenizer = tokenizer_of(run);
    const config::Data& d = run.data;
    if (d.fim.enabled && tokenizer && d.tokenizer_type != "NullTokenizer")
      (void)data::fim_rules(d.fim, *tokenizer);
    if (d.sft && tokenizer)
      chat_template::read_template({d.tokenizer_model, d.chat_template, d.sft_tokenizer_prompt_format});
    if (tokenizer && run.model.vocab_size == 0) run.model.vocab_size = vocab_size_of(run, *tokenizer);
    if (tokenizer && tokenizer->vocab_size() > run.model.vocab_size && starts_from_weights(run) &&
        tokenizer->base_vocab_size() <= run.model.vocab_size)
      run.notes.push_back(fmt::format(
          "tokenizer: ids from {} to {} are added tokens without embeddings in the model; texts with "
          "them are rejected",
          run.model.vocab_size, tokenizer->vocab_size() - 1));
    else if (tokenizer && tokenizer->vocab_size() > run.model.vocab_size)
      faults.push_back(fmt::format(
          "tokenizer: its vocabulary must fit the model's; got {} tokens in {} and --vocab-size {}; "
          "choose another tokenizer with --tokenizer-type and --tokenizer-model",
          tokenizer->vocab_size(), run.data.tokenizer_model, run.model.vocab_size));
  } catch (const ConfigError& e) {
    faults.emplace_back(e.what());
  }
}

namespace {

/// Replaces files with data paths by their words, so that checkpoints and config.yaml keep the words.
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
      run.invalid_keys.insert(key);
  }
}

/// Whether every setting that decides samples is given, as in the config.yaml of a run folder: then a
/// checkpoint, which may no longer exist, is not needed.
bool determines_all_samples(const config::Run& run) {
  return std::ranges::all_of(config::schema(), [&](const config::Setting& s) {
    const bool decides = s.cls == config::Class::kImplemented && s.get != nullptr && !s.nullable &&
                         config::reads(config::Use::kInspect, s);
    return !decides || run.given.contains(s.key);
  });
}

/// check_tokenizer, with another fix in the error when nobody named the tokenizer: the run may not need one.
void check_own_or_adopted_tokenizer(config::Run& run, std::vector<std::string>& faults) {
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

/// Adopts the model of --pretrained-checkpoint, and its dropout and tokenizer where nothing else sets them.
void adopt_pretrained(config::Run& run, rules::Purpose purpose, std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  const auto step = c.load.empty() ? c.ckpt_step : std::nullopt;
  const auto source = convert::open_weights(c.pretrained_checkpoint, step, {}, kSizes);
  fill_from(run, source, purpose, faults);
  if (purpose == rules::Purpose::kModel) return adopt_run_settings(run, source, purpose, faults);
  adopt_tokenizer(run, source);
  if (purpose != rules::Purpose::kTrain) return;
  if (source.state().is_object())
    adopt_dropout(run, source);
  else
    run.notes.push_back(dropout_note(run, (source.folder() / "config.json").string()));
}

}  // namespace

namespace {

/// Saves native checkpoints in place of formats that are not written, with a note.
void choose_checkpoint_format(config::Run& run) {
  config::Checkpoint& c = run.checkpoint;
  const bool other_states =
      c.saves_torch_dist() && !c.no_save_optim && run.optimizer.optimizer != config::OptimizerKind::kAdam;
  if (c.ckpt_format == "native" || (c.saves_torch_dist() && !other_states)) return;
  run.notes.push_back(fmt::format(
      "--ckpt-format {}: native checkpoints are saved; {}", c.ckpt_format,
      other_states
          ? "Megatron's torch_dist has the states of Adam alone (--no-save-optim saves it without states)"
          : "Megatron loads those of --ckpt-format torch_dist, or converted ones (colonnade convert)"));
  c.ckpt_format = "native";
}

}  // namespace

void prepare(config::Run& run, rules::Purpose purpose, std::vector<std::string> faults) {
  const config::Checkpoint& c = run.checkpoint;
  read_data_args(run, faults);
  if (purpose == rules::Purpose::kTrain) resume_upcycled_run(run);
  const bool needs_checkpoint = purpose != rules::Purpose::kData || !determines_all_samples(run);
  // A resumed run reads everything from its checkpoint: --pretrained-checkpoint may no longer exist.
  const auto loaded = needs_checkpoint ? adopt_loaded(run, purpose, faults) : std::nullopt;
  if (needs_checkpoint && !loaded && !c.pretrained_checkpoint.empty()) adopt_pretrained(run, purpose, faults);
  if (purpose == rules::Purpose::kTrain) check_save_folder(run, loaded, faults);
  if (purpose == rules::Purpose::kTrain) choose_checkpoint_format(run);
  check_own_or_adopted_tokenizer(run, faults);
  config::derive(run);
  rules::require(run, purpose, std::move(faults));
  if (purpose == rules::Purpose::kTrain && !c.save_hf.empty() && !models::hf::family_of(run.model))
    throw ConfigError(
        fmt::format("--save-hf must have a model that a Hugging Face class expresses; got {}; remove "
                    "--save-hf [save-hf]",
                    models::hf::export_text(run.model)));
}

namespace {

/// Opens a folder for its model description: of a Hugging Face folder with missing weights, config.json
/// alone.
checkpoint::CheckpointReader open_description(const std::filesystem::path& folder,
                                              std::optional<std::int64_t> step) {
  std::error_code absent;
  const auto has = [&](const char* file) { return std::filesystem::exists(folder / file, absent); };
  if (has("manifest.json") || !has("config.json")) return convert::open_weights(folder, step, {}, kSizes);
  try {
    return convert::open_hugging_face(folder);
  } catch (const DataError&) {
    return checkpoint::CheckpointReader::open_config(folder);
  }
}

}  // namespace

void describe_model(config::Run& run, std::vector<std::string>& faults) {
  const config::Checkpoint& c = run.checkpoint;
  if (!adopt_loaded(run, rules::Purpose::kPlan, faults) && !c.pretrained_checkpoint.empty()) {
    const auto source =
        open_description(c.pretrained_checkpoint, c.load.empty() ? c.ckpt_step : std::nullopt);
    require_same_builder(source, /*from_settings=*/true);
    fill_from(run, source, rules::Purpose::kPlan, faults);
    if (source.state().is_object()) adopt_dropout(run, source);
  }
}

}  // namespace colonnade::job
