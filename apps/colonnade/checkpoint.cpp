// `colonnade checkpoint inspect|verify|diff`: reads its arguments; checkpoint/verify.h does the rest.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/printable.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/verify.h"
#include "colonnade/convert/megatron/verify.h"
#include "colonnade/convert/open.h"
#include "flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

struct Paths {
  std::string first;
  std::string second;
  std::string json_file;
};

void add_command(CLI::App& app, const std::string& name, const std::string& help, Paths& paths, bool two) {
  CLI::App* command = app.add_subcommand(name, help);
  command
      ->add_option("PATH", paths.first,
                   "run folder, step folder, Hugging Face folder or checkpoint of Megatron")
      ->required();
  if (two) command->add_option("OTHER", paths.second, "the checkpoint to compare with")->required();
  command->add_option("--json", paths.json_file, "also write the result to this file as JSON");
}

void add_commands(CLI::App& app, Paths& paths) {
  app.require_subcommand(1);
  add_command(app, "inspect", "lists tensors, sizes, step and settings", paths, false);
  add_command(app, "verify", "verifies all checksums and reports all damage; exit code 3 if there is any",
              paths, false);
  add_command(app, "diff", "lists tensors that differ in dtype, shape or values; exit code 1 if any do",
              paths, true);
}

/// A checkpoint of any format. Names are those of Hugging Face where the model's family has them, so that
/// formats can be compared.
checkpoint::CheckpointReader opened(const std::string& path,
                                    checkpoint::Check check = checkpoint::Check::kChecksums) {
  return convert::open_weights(path, std::nullopt, {}, check);
}

/// Damage of the checkpoints in a folder, native ones before those of Megatron.
nlohmann::json verified(const std::string& path) {
  const auto folder = checkpoint::strip_trailing_slash(path);
  const bool native = checkpoint::step_of_name(folder.filename().string()).has_value() ||
                      !checkpoint::step_folders(folder / "checkpoints").empty();
  nlohmann::json result = native ? nlohmann::json() : convert::megatron::verify(folder);
  return result.is_null() ? checkpoint::verify(path) : result;
}

/// Prints `text`, and writes `result` to the file of --json.
void print_result(const std::string& text, const nlohmann::json& result, const Paths& paths) {
  fmt::print("{}", printable(text));
  if (!paths.json_file.empty()) write_file_atomically(paths.json_file, result.dump(2) + "\n");
}

}  // namespace

Offers checkpoint_offers() {
  CLI::App app("", "checkpoint");
  Paths paths;
  add_commands(app, paths);
  return offers_of(app, "checkpoint");
}

int checkpoint(const Arguments& arguments) {
  Paths paths;
  CLI::App app("Inspects, verifies and compares checkpoints", "checkpoint");
  add_commands(app, paths);
  if (!read_flags(app, arguments)) return kExitDone;
  require_writable("--json", paths.json_file);
  if (app.got_subcommand("inspect")) {
    const nlohmann::json result = checkpoint::inspect(opened(paths.first, checkpoint::Check::kSizes));
    print_result(checkpoint::inspect_text(result), result, paths);
    return kExitDone;
  }
  if (app.got_subcommand("verify")) {
    const nlohmann::json result = verified(paths.first);
    print_result(checkpoint::verify_text(result), result, paths);
    return result.at("ok").get<bool>() ? kExitDone : kExitData;
  }
  const nlohmann::json result = checkpoint::diff(opened(paths.first), opened(paths.second));
  print_result(checkpoint::diff_text(result), result, paths);
  return result.at("equal").get<bool>() ? kExitDone : kExitFailed;
}

}  // namespace colonnade::app
