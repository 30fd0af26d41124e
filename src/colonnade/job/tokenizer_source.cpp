// See tokenizer_source.h.
#include "colonnade/job/tokenizer_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/tokenizers/folder_type.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Whether the tokenizer files of the settings exist, with the checksum in `state`.
bool are_files_unchanged(const config::Run& run, const json& state) {
  std::error_code unreadable;
  for (const auto& [key, name] : state.at("tokenizer_files").items())
    if (const std::string path = config::text_of(run, config::setting(key)); !fs::exists(path, unreadable))
      return false;
  try {
    const std::string file = ids_file(run.data);
    const std::string kept = state.value(json::json_pointer("/tokenizer/xxh3_128"), "");
    return file.empty() || kept == checkpoint::file_checksum(file).xxh3_128;
  } catch (const DataError&) {
    return false;
  }
}

/// Whether type and files are those of the settings in `state`.
bool is_saved_tokenizer(const config::Run& run, const json& state) {
  const json settings = state.value("settings", json::object());
  const config::Run now = with_absolute_paths(run);
  return std::ranges::all_of(kTokenizerKeys, [&](const char* key) {
    return settings.value(key, "") == config::text_of(now, config::setting(key));
  });
}

/// Path of a copied file. An untrusted checkpoint must not name files outside its folder.
fs::path copy_in(const fs::path& step_folder, const std::string& name) {
  if (name == ".") return step_folder;
  if (!checkpoint::is_plain_name(name))
    throw DataError(
        fmt::format("{}: tokenizer_files must name files in the folder; got '{}'; load another checkpoint",
                    step_folder.string(), name));
  return step_folder / name;
}

void note_tokenizer(config::Run& run, const std::string& from) {
  run.notes.push_back(fmt::format("tokenizer: {} of {} (to change it: --tokenizer-type, --tokenizer-model)",
                                  run.data.tokenizer_type, from));
}

void adopt_saved(config::Run& run, const checkpoint::CheckpointReader& source) {
  const json& state = source.state();
  if (!state.contains("settings")) return;
  resume_tokenizer(run, state.at("settings"), source.folder().string());
  if (run.data.tokenizer_type.empty()) return;
  use_tokenizer_copies(run, state, source.folder());
  note_tokenizer(run, source.folder().string());
}

}  // namespace

bool names_tokenizer(const config::Run& run) {
  return std::ranges::any_of(kTokenizerKeys, [&](const char* key) { return run.given.contains(key); });
}

void adopt_tokenizer(config::Run& run, const checkpoint::CheckpointReader& source) {
  const config::Checkpoint& c = run.checkpoint;
  if (!c.use_tokenizer_model_from_checkpoint_args || run.data.mock_data) return;
  if (names_tokenizer(run) ? !c.use_checkpoint_args : !run.data.tokenizer_type.empty()) return;
  if (source.state().is_object()) return adopt_saved(run, source);
  const std::string folder = source.folder().string();
  const tokenizers::FolderType found =
      tokenizers::detect_tokenizer(folder, models::hf::model_type_of(source.hf_config()));
  if (!found.reason.empty())
    run.notes.push_back(
        fmt::format("{}: its tokenizer cannot be read: {}; write a tokenizer.json with "
                    "AutoTokenizer.from_pretrained(F).save_pretrained(F), or name one with --tokenizer-type",
                    folder, found.reason));
  if (found.type.empty()) return;
  for (const std::string_view key : kTokenizerKeys)
    config::override_from_checkpoint(run, key,
                                     key == "tokenizer_type" ? found.type
                                     : key == "tokenizer_model"
                                         ? folder
                                         : config::text_of(config::Run{}, config::setting(key)),
                                     folder);
  note_tokenizer(run, folder);
}

std::vector<std::int32_t> prompt_ids(const config::Run& run, const tokenizers::Tokenizer& tokenizer,
                                     const std::string& text) {
  try {
    return tokenizers::encode_prompt(tokenizer, text);
  } catch (const DataError&) {
    const bool are_ids = text.find_first_not_of("0123456789- \t\n") == std::string::npos;
    if (are_ids || !run.data.tokenizer_type.empty()) throw;
    const config::Checkpoint& c = run.checkpoint;
    throw ConfigError(fmt::format(
        "prompt must be ids from 0 to {} separated by spaces where no tokenizer is loaded; got '{}', and {} holds no "
        "readable tokenizer; name one with --tokenizer-type and --tokenizer-model",
        tokenizer.vocab_size() - 1, text.substr(0, 40), c.load.empty() ? c.pretrained_checkpoint : c.load));
  }
}

void use_tokenizer_copies(config::Run& run, const json& state, const fs::path& step_folder) {
  if (!run.checkpoint.use_tokenizer_model_from_checkpoint_args) return;
  if (!state.is_object() || !state.contains("tokenizer_files") || run.data.tokenizer_type.empty()) return;
  if (!is_saved_tokenizer(run, state) || are_files_unchanged(run, state)) return;
  for (const auto& [key, name] : state.at("tokenizer_files").items())
    config::set(run, key, copy_in(step_folder, name.get<std::string>()).string());
  run.notes.push_back(
      fmt::format("tokenizer: the files of {} are missing or have changed; their copies in {} are read",
                  run.data.tokenizer_type, step_folder.string()));
}

}  // namespace colonnade::job
