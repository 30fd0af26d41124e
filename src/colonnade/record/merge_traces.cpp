// See merge_traces.h.
#include "colonnade/record/merge_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/base/write_error.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using TraceJson = nlohmann::json;

/// Nanoseconds since 1970 at which the times of a trace begin. The field is at the beginning or at the end of
/// the file.
std::int64_t base_time_ns(const fs::path& path) {
  constexpr std::streamoff kWindow = 1 << 16;
  constexpr std::string_view kField = "\"baseTimeNanoseconds\":";
  std::ifstream file(path, std::ios::binary);
  const auto size = static_cast<std::streamoff>(fs::file_size(path));
  for (const std::streamoff begin : {std::streamoff{0}, std::max(size - kWindow, std::streamoff{0})}) {
    std::string text(static_cast<std::size_t>(std::min(size - begin, kWindow)), '\0');
    file.seekg(begin);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    std::size_t at = text.find(kField);
    if (at == std::string::npos) continue;
    at = std::min(text.find_first_not_of(' ', at + kField.size()), text.size());
    std::int64_t value = 0;
    std::from_chars(text.data() + at, text.data() + text.size(), value);
    return value;
  }
  return 0;
}

/// Whether the merged trace replaces or omits the event: process names, and marks of the profiler itself,
/// which have words instead of process ids.
bool is_left_out(const TraceJson& event) {
  if (!event.contains("pid") || !event["pid"].is_number()) return true;
  constexpr std::array<std::string_view, 3> kProcess{"process_name", "process_labels", "process_sort_index"};
  const auto name = event.value("name", std::string());
  return event.value("ph", std::string()) == "M" && std::ranges::find(kProcess, name) != kProcess.end();
}

class MergedTrace {
 public:
  explicit MergedTrace(const fs::path& path) : file_(path, std::ios::binary | std::ios::trunc) {
    file_ << "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  }
  void add(const TraceJson& event) {
    if (count % 1024 == 0) progress().heartbeat();  // the launcher would take a silent rank for a hung one
    file_ << (count++ == 0 ? "\n" : ",\n") << event.dump(-1, ' ', false, TraceJson::error_handler_t::replace);
  }
  /// Whether everything has been written.
  bool close(std::int64_t base_ns) {
    file_ << fmt::format("\n],\"baseTimeNanoseconds\":{}}}\n", base_ns);
    file_.close();
    return static_cast<bool>(file_);
  }
  std::int64_t count = 0;

 private:
  std::ofstream file_;
};

/// Appends the events of one rank, `shift_us` later.
void add_events(const RankTrace& trace, double shift_us, MergedTrace& merged) {
  const auto named = [&](const char* what, TraceJson args) {
    merged.add({{"ph", "M"}, {"name", what}, {"pid", trace.rank}, {"tid", 0}, {"args", std::move(args)}});
  };
  named("process_name", {{"name", trace.name}});
  named("process_sort_index", {{"sort_index", trace.rank}});
  bool in_events = false;
  // Elements of the array are written and dropped, so the parser keeps one at a time.
  const auto each = [&](int depth, TraceJson::parse_event_t kind, TraceJson& parsed) {
    if (depth == 1 && kind == TraceJson::parse_event_t::key) in_events = parsed == "traceEvents";
    if (depth != 2 || kind != TraceJson::parse_event_t::object_end || !in_events) return true;
    if (is_left_out(parsed)) return false;
    parsed["pid"] = trace.rank;
    if (parsed.contains("ts") && parsed["ts"].is_number())
      parsed["ts"] = parsed["ts"].get<double>() + shift_us;
    if (parsed.contains("id")) parsed["id"] = fmt::format("{}.{}", trace.rank, parsed["id"].dump());
    merged.add(parsed);
    return false;
  };
  std::ifstream file(trace.file, std::ios::binary);
  const TraceJson rest = TraceJson::parse(file, each);
  if (!rest.contains("traceEvents")) throw DataError("no traceEvents");
}

}  // namespace

std::vector<std::string> process_names(const std::vector<RankSummary>& ranks) {
  std::vector<std::string> names;
  for (const RankSummary& rank : ranks)
    names.push_back(fmt::format("rank {} ({})", rank.rank, rank.coordinates));
  return names;
}

std::int64_t merge_traces(const std::vector<RankTrace>& traces, const fs::path& out) {
  const fs::path part = out.string() + ".part";
  MergedTrace merged(part);
  std::int64_t first_base = 0;
  for (const RankTrace& trace : traces) {
    try {
      const std::int64_t base = base_time_ns(trace.file);
      if (&trace == &traces.front()) first_base = base;
      add_events(trace, static_cast<double>(base - first_base) * 1e-3, merged);
    } catch (const std::exception& e) {
      std::error_code ignored;
      fs::remove(part, ignored);
      throw DataError(
          fmt::format("{}: must be a Chrome trace of a rank; got {}; open the other ranks' traces",
                      trace.file.string(), e.what()));
    }
  }
  if (!merged.close(first_base)) throw_write_error(part, errno);
  fs::rename(part, out);
  return merged.count;
}

}  // namespace colonnade::record
