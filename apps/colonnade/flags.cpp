// See flags.h.
#include "flags.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/config/parse.h"
#include "flag_faults.h"

namespace colonnade::app {
namespace {

std::string with_dashes(std::string word) {
  if (!word.starts_with("--")) return word;
  const auto end = std::find(word.begin(), word.end(), '=');
  std::replace(word.begin(), end, '_', '-');
  return word;
}

/// Writes and removes a file of one page at the path where the output will be staged. This detects missing
/// permissions, a full disk and too long names.
template <typename Fault>
std::string why_not_created(const std::string& staged, const Fault& fault) {
  constexpr std::size_t kPage = 4096;
  const std::string page(kPage, '\0');
  const int file = ::open(staged.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written =
      file >= 0 && ::write(file, page.data(), page.size()) == static_cast<ssize_t>(page.size());
  const int reason = errno;
  if (file >= 0) ::close(file);
  if (file >= 0) ::unlink(staged.c_str());
  if (written) return "";
  return fault(fmt::format("which cannot be written ({})", std::strerror(reason)).c_str());
}

}  // namespace

bool read_flags(CLI::App& app, const Arguments& arguments,
                const std::map<std::string, std::string>& unsupported) {
  Arguments words;
  std::transform(arguments.rbegin(), arguments.rend(), std::back_inserter(words), with_dashes);
  // Unknown words are collected, so that all of them are reported, before missing options.
  app.allow_extras();
  std::vector<std::string> faults;
  try {
    app.parse(words);  // takes them from the back
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help("colonnade"));
    return false;
  } catch (const CLI::ParseError& error) {
    faults = faults_of(app, error);
  }
  config::require_none(unknown_words(app, unsupported));
  config::require_none(faults);
  return true;
}

CLI::Validator within(std::int64_t low, std::int64_t high) {
  const std::string range = high == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format("{} or more", low)
                                : fmt::format("{} to {}", low, high);
  const auto check = [low, high, range](const std::string& word) -> std::string {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool number = error == std::errc{} && end == word.data() + word.size();
    if (number && value >= low && value <= high) return "";
    return fmt::format("must be an integer, {}; got '{}'; write e.g. {}", range, word, low);
  };
  return {check, range};
}

CLI::Validator not_empty() {
  const auto check = [](const std::string& word) -> std::string {
    return word.empty() ? "must not be empty; got ''; write e.g. out/books" : "";
  };
  return {check, ""};
}

void reject_given(const CLI::App& app, std::span<const char* const> flags, const char* needed) {
  for (const char* flag : flags)
    if (app.get_option(flag)->count() > 0)
      throw ConfigError(fmt::format("{} requires {}; got none; add it, or remove {}", flag, needed, flag));
}

Offers offers_of(const CLI::App& app, const std::string& verb, const std::string& sub) {
  Offers offers;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const Offers more = offers_of(*command, verb, command->get_name());
    offers.insert(offers.end(), more.begin(), more.end());
  }
  if (!offers.empty()) return offers;
  config::VerbCompletion offer{verb, sub, {}};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const int values = option->get_expected_max() == 0 ? 0 : 1;
      if (name != "help") offer.flags.push_back({"--" + name, values, option->get_description()});
    }
  }
  return {offer};
}

namespace {

/// Whether a file has the weights of a checkpoint, or describes them.
bool is_checkpoint_file(const std::filesystem::path& file) {
  std::error_code unreadable;
  const auto has_sibling = [&](const char* name) {
    return std::filesystem::exists(file.parent_path() / name, unreadable);
  };
  const std::string name = file.filename().string();
  return (name.ends_with(".safetensors") || name == "config.json" || name == "manifest.json") &&
         (has_sibling("manifest.json") || has_sibling("config.json"));
}

}  // namespace

std::string why_not_writable(const std::string& flag, const std::string& file,
                             const std::vector<std::filesystem::path>& inputs) {
  if (file.empty()) return "";
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = fs::absolute(file, error);
  const auto fault = [&](const char* why) {
    return fmt::format("{} must name a file that can be written; got {}, {}; name another", flag, file, why);
  };
  if (fs::is_directory(path, error)) return fault("which is a folder");
  if (fs::exists(path, error) && !fs::is_regular_file(path, error))
    return fault("which is not a regular file");
  if (!fs::is_directory(path.parent_path(), error)) return fault("whose folder does not exist");
  for (const fs::path& input : inputs)
    if (fs::equivalent(path, input, error)) return fault("which is an input");
  if (fs::exists(path, error) && is_checkpoint_file(path)) return fault("which belongs to a checkpoint");
  return why_not_created(path.string() + fmt::format(".part-{}", ::getpid()), fault);
}

void require_writable(const std::string& flag, const std::string& file,
                      const std::vector<std::filesystem::path>& inputs) {
  const std::string fault = why_not_writable(flag, file, inputs);
  if (!fault.empty()) throw ConfigError(fault);
}

}  // namespace colonnade::app
