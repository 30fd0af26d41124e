// YAML dump: one line per setting, in the order of the help.
#include "colonnade/config/dump.h"

#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

/// A YAML scalar that parses back to the same text; texts are quoted.
std::string scalar(const Setting& s, const std::string& text) {
  if (s.kind == Kind::kInteger || s.kind == Kind::kNumber || s.kind == Kind::kSwitch) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      quoted += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte == 0x7f)
      quoted += fmt::format("\\x{:02x}", byte);
    else
      quoted += c;
  }
  return quoted + '"';
}

std::string value(const Setting& s, const std::optional<Words>& words) {
  if (!words) return "null";
  if (s.kind != Kind::kList) return scalar(s, words->empty() ? "" : words->front());
  std::vector<std::string> parts;
  for (const std::string& word : *words) parts.push_back(scalar(s, word));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

}  // namespace

std::string dump(const Run& run) {
  std::string text = "# All settings of a run. Repeat it with: colonnade pretrain --config <this file>\n";
  std::string group;
  for (const Setting& s : schema()) {
    if (s.get == nullptr) continue;
    if (s.group != group) text += fmt::format("\n# {}\n", s.group);
    group = s.group;
    text += fmt::format("{}: {}\n", s.key, value(s, s.get(run)));
  }
  return text;
}

std::map<std::string, std::string> values(const Run& run) {
  std::map<std::string, std::string> out;
  for (const Setting& s : schema()) {
    if (s.set != nullptr && s.get != nullptr && s.get(run)) out.emplace(s.key, text_of(run, s));
  }
  return out;
}

}  // namespace colonnade::config
