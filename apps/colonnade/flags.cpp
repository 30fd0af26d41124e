// See flags.h.
#include "flags.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

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

bool is_list(const CLI::Option& option) {
  return option.get_expected_max() == CLI::detail::expected_max_vector_size;
}

/// The type of an option and the description of its validator: {"INT", "1 to 8"}; {"FLOAT", ""}.
std::pair<std::string, std::string> type_and_limits(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t colon = std::min(type.find(':'), type.size());
  return {type.substr(0, colon), colon < type.size() ? type.substr(colon + 1) : ""};
}

/// Placeholder of an option's value, as those of settings: "N", "X", "TEXT", "a|b", "WORD ..."; "" for a
/// switch.
std::string value_name(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const auto [type, limits] = type_and_limits(option);
  if (limits.find('|') != std::string::npos) return limits;
  std::string name = type == "INT" || type == "UINT" ? "N" : type == "FLOAT" ? "X" : type;
  if (!is_list(option)) return name;
  return (name == "TEXT" ? "WORD" : name) + " ...";
}

/// Whether an option is required, its default, its limits and its environment variable.
std::vector<std::string> notes(const CLI::Option& option) {
  std::vector<std::string> notes;
  if (option.get_required()) notes.emplace_back("required");
  std::string text = option.get_default_str();
  if (is_list(option) && text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (!text.empty() && option.get_type_size() != 0) notes.push_back(text);
  const std::string limits = type_and_limits(option).second;
  if (!limits.empty() && limits.find('|') == std::string::npos) notes.push_back(limits);
  if (!option.get_envname().empty()) notes.push_back("environment variable " + option.get_envname());
  return notes;
}

/// Row of a flag, or of a positional argument.
config::HelpRow help_row(const CLI::Option& option) {
  if (option.get_positional())
    return {option.get_single_name() + (is_list(option) ? " ..." : ""), "", option.get_description(),
            notes(option)};
  return {"--" + option.get_lnames().at(0), value_name(option), option.get_description(), notes(option)};
}

}  // namespace

void describe(CLI::App& app, const std::string& about, const std::vector<std::string>& examples) {
  app.description(about);
  app.footer(fmt::format("{}", fmt::join(examples, "\n")));
}

config::HelpPage help_page(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  const CLI::App& verb = parsed.empty() ? app : *parsed.back();
  config::HelpPage page{.usage = "colonnade " + app.get_name(), .about = verb.get_description()};
  if (!parsed.empty()) page.usage += " " + verb.get_name();
  config::HelpSection subs{"sub-verbs", {}}, arguments{"arguments", {}}, flags{"flags", {}};
  for (const CLI::App* sub : verb.get_subcommands([](const CLI::App*) { return true; }))
    subs.rows.push_back({sub->get_name(), "", sub->get_description()});
  for (const CLI::Option* option : verb.get_options())
    if (option != verb.get_help_ptr())
      (option->get_positional() ? arguments : flags).rows.push_back(help_row(*option));
  if (!subs.rows.empty()) page.usage += " SUB-VERB ...";
  if (!flags.rows.empty()) page.usage += " [FLAGS]";
  for (const config::HelpRow& argument : arguments.rows) page.usage += " " + argument.flag;
  std::istringstream examples(verb.get_footer());
  for (std::string line; std::getline(examples, line);) page.examples.push_back(line);
  page.sections = {std::move(subs), std::move(arguments), std::move(flags)};
  return page;
}

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
    fmt::print("{}", config::render(help_page(app)));
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
      if (name != "help")
        offer.flags.push_back({"--" + name, value_name(*option), option->get_description()});
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
