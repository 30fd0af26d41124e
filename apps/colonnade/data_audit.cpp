// `colonnade data audit`: samples that a run has used.
#include <charconv>

#include "colonnade/audit/audit.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "data.h"
#include "flags.h"

namespace colonnade::app {
namespace {

struct Options {
  std::string run, json, samples;
};

void add_audit_flags(CLI::App& app, Options& options) {
  describe(
      app,
      "Reports the samples that a run has used: samples, tokens and epochs of each data set, what was read "
      "twice, computed twice or skipped, and whether the data are unchanged (exit code 3 if not).",
      {"colonnade data audit runs/books --samples 4000..4007"});
  app.add_option("run", options.run, "Folder of the run (its --save)")->required();
  app.add_option("--samples", options.samples,
                 "A..B: show the documents of these samples of the run, from 0");
  app.add_option("--json", options.json, "Also write the report as JSON to this file");
}

/// Parses "A..B", or "A" alone.
std::pair<std::int64_t, std::int64_t> read_range(const std::string& text) {
  std::pair<std::int64_t, std::int64_t> range;
  const std::size_t dots = text.find("..");
  const std::string first = text.substr(0, dots),
                    last = dots == std::string::npos ? first : text.substr(dots + 2);
  const auto read = [](const std::string& word, std::int64_t& number) {
    const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), number);
    return fault == std::errc() && end == word.data() + word.size();
  };
  if (!read(first, range.first) || !read(last, range.second))
    throw ConfigError(
        fmt::format("--samples must be a number or A..B; got '{}'; write --samples 0..9", text));
  return range;
}

}  // namespace

Offers data_audit_offers() {
  CLI::App app("", "data audit");
  Options options;
  add_audit_flags(app, options);
  return offers_of(app, "data", "audit");
}

int data_audit(const Arguments& arguments) {
  CLI::App app("", "data audit");
  Options options;
  add_audit_flags(app, options);
  if (!read_flags(app, arguments)) return kExitDone;
  require_writable("--json", options.json);
  audit::AuditOptions asked;
  if (!options.samples.empty()) asked.samples = read_range(options.samples);
  const nlohmann::ordered_json audit = audit::audit(options.run, asked);
  fmt::print("{}", audit::audit_text(audit));
  if (!options.json.empty())
    write_file_atomically(options.json,
                          audit.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  return audit::data_changed(audit) ? kExitData : kExitDone;
}

}  // namespace colonnade::app
