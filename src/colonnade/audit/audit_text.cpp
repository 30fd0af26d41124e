// See audit.h: the audit as text.
#include <fmt/format.h>

#include <algorithm>

#include "colonnade/audit/audit.h"
#include "colonnade/data/sample_description.h"

namespace colonnade::audit {
namespace {

using json = nlohmann::ordered_json;

/// "4 to 7", or "4".
std::string range_text(const json& range) {
  const auto first = range[0].get<std::int64_t>(), last = range[1].get<std::int64_t>();
  return first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
}

std::string ranges_text(const json& ranges) {
  constexpr std::size_t kMost = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranges.size(), kMost); ++i)
    text += (i > 0 ? ", " : "") + range_text(ranges[i]);
  return ranges.size() <= kMost ? text : fmt::format("{}, ... ({} in all)", text, ranges.size());
}

std::string session_text(const json& s) {
  std::string text = s.at("steps").is_null() ? "none of its steps are in the weights"
                                             : fmt::format("steps {}, samples {}", range_text(s.at("steps")),
                                                           range_text(s.at("samples")));
  if (!s.at("lost_samples").is_null())
    text += fmt::format("; samples {} lost", range_text(s.at("lost_samples")));
  if (!s.at("from").is_null()) text += "; from " + s.at("from").get<std::string>();
  if (const json& counted = s.at("counted"); !counted.is_null())
    text += fmt::format(", whose step {} counts as {}", counted.at("step").dump(), counted.at("as").dump());
  return fmt::format("  {}  {}\n", s.at("began").get<std::string>(), text);
}

std::string set_text(const json& s) {
  std::string text =
      fmt::format("  {}\n    {} samples, {} tokens, {:.3f} epochs; {} of {} sequences read",
                  s.at("name").get<std::string>(), s.at("samples").dump(), s.at("tokens").dump(),
                  s.at("epochs").get<double>(), s.at("read").dump(), s.at("sequences").dump());
  if (s.at("read_again") > 0)
    text += fmt::format(", {} of them started more than once (up to {} times)", s.at("read_again").dump(),
                        s.at("most") == 255 ? "255 or more" : s.at("most").dump());
  if (!s.at("first_again").is_null())
    text += fmt::format("; sample {} is the first to repeat a token", s.at("first_again").dump());
  return text + "\n";
}

std::string files_text(const json& files) {
  std::string text;
  for (const json& f : files) {
    const auto state = f.at("state").get<std::string>();
    if (state == "unchanged") continue;
    text += fmt::format("  {}: {}", f.at("path").get<std::string>(), state);
    if (f.contains("bytes_now"))
      text += f.at("bytes_now") == f.at("bytes")
                  ? "; same size, other contents"
                  : fmt::format("; had {} bytes, has {}", f.at("bytes").dump(), f.at("bytes_now").dump());
    text += "\n";
  }
  return text.empty() && !files.empty() ? fmt::format("  all {} unchanged\n", files.size()) : text;
}

std::string shown_text(const json& sample) {
  return fmt::format("sample {} (step {}{}) of {}\n{}", sample.at("sample").dump(), sample.at("step").dump(),
                     sample.at("skipped") == true ? ", skipped" : "",
                     sample.at("data_set").get<std::string>(), data::description_text(sample));
}

}  // namespace

std::string audit_text(const json& a) {
  std::string text = fmt::format("{}: {} steps, {} samples\nsessions\n", a.at("run").get<std::string>(),
                                 a.at("steps").dump(), a.at("samples").dump());
  for (const json& session : a.at("sessions")) text += session_text(session);
  if (const json& before = a.at("before"); !before.is_null())
    text += fmt::format("samples {} were used earlier, by the run of {}\n", range_text(before.at("samples")),
                        before.at("from").get<std::string>());
  for (const json& again : a.at("computed_again"))
    text += fmt::format("samples {} were computed {} times; the weights contain {}\n",
                        range_text(again.at("samples")), again.at("times").dump(),
                        again.contains("held") ? again.at("held").dump() + " of them" : "the last");
  if (!a.at("lost").empty())
    text += fmt::format("samples {} were computed and are not in the weights\n", ranges_text(a.at("lost")));
  if (const json& skipped = a.at("skipped"); skipped.at("steps") > 0)
    text += fmt::format("{} steps were skipped: {}\n", skipped.at("steps").dump(),
                        skipped.at("ranges").empty() ? "their samples are unknown"
                                                     : "samples " + ranges_text(skipped.at("ranges")));
  if (!a.at("unrecorded").empty())
    text += fmt::format("steps {} have no line in metrics.jsonl\n", ranges_text(a.at("unrecorded")));
  text += "training data\n";
  for (const json& set : a.at("data_sets")) text += set_text(set);
  for (const json& problem : a.at("problems")) text += "  " + problem.get<std::string>() + "\n";
  if (!a.at("files").empty()) text += "files\n" + files_text(a.at("files"));
  if (a.contains("shown"))
    for (const json& sample : a.at("shown")) text += shown_text(sample);
  return text;
}

}  // namespace colonnade::audit
