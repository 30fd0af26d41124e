// See ledger.h.
#include "colonnade/audit/ledger.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <set>

#include "colonnade/audit/changed_data.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/reason.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/config/dump.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/sft/sft_conversations.h"
#include "colonnade/job/resume_policy.h"
#include "colonnade/record/append_file.h"
#include "colonnade/record/metrics.h"

namespace colonnade::audit {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr int kVersion = 2;
constexpr std::int64_t kNanoseconds = 1'000'000'000;

json loaded_json(const record::ResumePoint& at) { return {{"step", at.step}, {"samples", at.samples}}; }
record::ResumePoint to_loaded(const json& at) {
  return {at.at("step").get<std::int64_t>(), at.at("samples").get<std::int64_t>()};
}

bool is_sampled(const std::string& path) { return path.ends_with(".bin"); }
const char* checksum_key(const std::string& path) {
  return is_sampled(path) ? "xxh3_128_of_places" : "xxh3_128";
}

std::string to_text(const LedgerLine& line) {
  json files = json::array();
  for (const DataFile& f : line.files) {
    files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"changed_ns", f.changed_ns}});
    files.back()[checksum_key(f.path)] = f.xxh3_128;
    files.back()["sets"] = f.sets;
  }
  return json{{"version", kVersion},
              {"began", line.began},
              {"began_s", line.began_s},
              {"step", line.loaded.step},
              {"samples", line.loaded.samples},
              {"saved", line.saved ? loaded_json(*line.saved) : json()},
              {"from", line.from.empty() ? json() : json(line.from)},
              {"own", line.own},
              {"reached", line.reached ? loaded_json(*line.reached) : json()},
              {"files", std::move(files)},
              {"data", line.data},
              {"tokenizer", line.tokenizer},
              {"settings", line.settings}}
             .dump() +
         "\n";
}

LedgerLine to_line(const std::string& text) {
  const json object = json::parse(text);
  if (object.at("version") != kVersion)
    throw DataError(fmt::format("version {}", object.at("version").dump()));
  LedgerLine line{.began = object.at("began").get<std::string>(),
                  .began_s = object.at("began_s").get<std::int64_t>(),
                  .loaded = to_loaded(object),
                  .from = object.at("from").is_null() ? "" : object.at("from").get<std::string>(),
                  .own = object.at("own").get<bool>(),
                  .settings = object.at("settings").get<decltype(LedgerLine::settings)>(),
                  .data = nlohmann::json(object.at("data")),
                  .tokenizer = nlohmann::json(object.at("tokenizer"))};
  if (const json& reached = object.at("reached"); !reached.is_null()) line.reached = to_loaded(reached);
  if (const json saved = object.value("saved", json()); !saved.is_null()) line.saved = to_loaded(saved);
  for (const json& f : object.at("files"))
    line.files.push_back({f.at("path").get<std::string>(), f.at("bytes").get<std::uint64_t>(),
                          f.at("changed_ns").get<std::int64_t>(),
                          f.at(checksum_key(f.at("path").get<std::string>())).get<std::string>(),
                          f.value("sets", std::vector<std::string>())});
  return line;
}

/// Lines that end with a newline, without it; a torn last line is left out.
std::vector<std::string> complete_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    if (end > at) lines.push_back(text.substr(at, end - at));
  return lines;
}

/// Checksum of kBlocks blocks of a file, both ends included; of the full file where it is not larger.
std::string checksum_of_blocks(const std::string& path, std::uint64_t bytes) {
  constexpr std::uint64_t kBlocks = 64, kBytes = 4096;
  if (bytes <= kBlocks * kBytes) return checkpoint::file_checksum(path).xxh3_128;
  std::ifstream file(path, std::ios::binary);
  checkpoint::Checksum sum;
  std::array<char, kBytes> block{};
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    const std::uint64_t last = bytes - kBytes, at = i + 1 < kBlocks ? last / (kBlocks - 1) * i : last;
    file.seekg(static_cast<std::streamoff>(at));
    if (!file.read(block.data(), kBytes))
      throw DataError(fmt::format("{} must be readable; got {} at byte {}; check the disk", path,
                                  file.eof() ? "its end" : "an error", at));
    sum.update(block.data(), kBytes);
  }
  return sum.hex();
}

/// State of a file without its checksum.
DataFile state_now(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0)
    throw DataError(fmt::format("{}: cannot be read; {}", path, std::strerror(errno)));
  return {.path = path,
          .bytes = static_cast<std::uint64_t>(about.st_size),
          .changed_ns = about.st_mtim.tv_sec * kNanoseconds + about.st_mtim.tv_nsec};
}

std::string current_checksum(const DataFile& file) {
  return is_sampled(file.path) ? checksum_of_blocks(file.path, file.bytes)
                               : checkpoint::file_checksum(file.path).xxh3_128;
}

/// The checksum in `last`; "" unless the file is unchanged. A file modified in the last seconds before that
/// session may have changed again within one tick of the file system's clock.
std::string known_checksum(const DataFile& file, const std::optional<LedgerLine>& last) {
  if (!last || file.changed_ns > (last->began_s - 5) * kNanoseconds) return "";
  for (const DataFile& was : last->files)
    if (was.path == file.path && was.bytes == file.bytes && was.changed_ns == file.changed_ns)
      return was.xxh3_128;
  return "";
}

std::vector<LedgerLine> lines_or_none(const record::RunFolder& folder) {
  try {
    return read_ledger(folder);
  } catch (const DataError&) {
    return {};
  }
}

std::optional<LedgerLine> last_line(const record::RunFolder& folder) {
  const std::vector<LedgerLine> lines = lines_or_none(folder);
  return lines.empty() ? std::nullopt : std::optional(lines.back());
}

/// The session that made the checkpoint of `step` in RUN/checkpoints/step_N.
std::optional<LedgerLine> maker_of(const std::string& checkpoint, std::int64_t step) {
  std::vector<LedgerLine> lines = lines_or_none({fs::path(checkpoint).parent_path().parent_path()});
  while (!lines.empty() && started_after(lines.back(), checkpoint, step)) lines.pop_back();
  return lines.empty() ? std::nullopt : std::optional(lines.back());
}

}  // namespace

std::string set_path(const std::string& name) {
  std::string path = fs::absolute(name).lexically_normal();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool started_after(const LedgerLine& session, const std::string& checkpoint, std::int64_t step) {
  if (session.loaded.step >= step) return true;
  const fs::path manifest = fs::path(checkpoint) / "manifest.json";
  std::error_code none;
  return fs::exists(manifest, none) && session.began_s * kNanoseconds > state_now(manifest).changed_ns;
}

DataFile file_now(const std::string& path) {
  DataFile file = state_now(path);
  file.xxh3_128 = current_checksum(file);
  return file;
}

std::vector<DataFile> data_files(const config::Run& run, const data::Splits& splits,
                                 const std::optional<LedgerLine>& last) {
  if (run.data.mock_data) return {};
  std::set<std::string> names;
  for (const auto& split : splits)
    if (split != nullptr)
      for (const data::SampleOrder& order : split->samples().orders()) names.insert(order.name);
  std::map<std::string, std::set<std::string>> sets;  // by file
  for (const std::string& name : names) {
    const auto paths = run.data.sft ? data::chat_files(name)
                                    : std::vector<fs::path>{data::idx_path(name), data::bin_path(name)};
    for (const fs::path& file : paths) sets[fs::absolute(file).lexically_normal()].insert(set_path(name));
  }
  std::vector<DataFile> files;
  for (const auto& [path, of] : sets) {
    DataFile& file = files.emplace_back(state_now(path));
    file.sets.assign(of.begin(), of.end());
    file.xxh3_128 = known_checksum(file, last);
    if (file.xxh3_128.empty()) file.xxh3_128 = current_checksum(file);
  }
  return files;
}

void add_to_ledger(const record::RunFolder& folder, LedgerLine line) {
  try {
    if (line.retained().step == 0) {
      record::back_up_existing(folder.ledger());
    } else if (const auto last = record::last_step(folder.metrics())) {
      line.reached = record::ResumePoint{last->iteration, last->consumed_samples};
    }
    const std::string before = fs::exists(folder.ledger()) ? read_file(folder.ledger()) : "";
    write_file_atomically(folder.ledger(), before.substr(0, before.rfind('\n') + 1) + to_text(line));
  } catch (const ConfigError&) {  // full disk
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format(
        "{} must record this session, or its samples would be counted for the previous one; got: {}; free the disk, "
        "or choose another folder (--save)",
        folder.ledger().string(), error.what()));
  }
}

void write_session(const record::RunFolder& folder, const config::Run& run, const data::Splits& splits,
                   LedgerLine line, const std::vector<job::ChangedTokens>& tokens) {
  record::make_run_folder(folder);
  if (!line.from.empty()) {
    const fs::path from = fs::absolute(line.from).lexically_normal();  // RUN/checkpoints/step_N
    line.from = from.string();
    line.own = fs::weakly_canonical(from.parent_path().parent_path()) == fs::weakly_canonical(folder.root);
  }
  line.began = record::local_time("%Y-%m-%d %H:%M:%S");
  line.began_s = std::time(nullptr);
  line.settings = config::values(job::with_absolute_paths(run));
  line.data = job::data_state(splits);
  line.files = data_files(run, splits, last_line(folder));
  std::optional<LedgerLine> before;
  if (line.retained().step > 0 && !line.from.empty()) before = maker_of(line.from, line.retained().step);
  for (const std::string& change : changed_data(line, before, tokens)) log::warning("{}", change);
  add_to_ledger(folder, std::move(line));
}

std::vector<LedgerLine> read_ledger(const record::RunFolder& folder) {
  const fs::path path = folder.ledger();
  if (!fs::exists(path))
    throw DataError(fmt::format(
        "{} must exist; got a folder without it; name the folder (--save) of a run that was trained with this "
        "version",
        path.string()));
  std::vector<LedgerLine> lines;
  for (const std::string& text : complete_lines(read_file(path))) {
    try {
      lines.push_back(to_line(text));
    } catch (const std::exception& error) {
      throw DataError(
          fmt::format("{}:{}: each line must be a session in JSON; got {}; fix it or move the file away",
                      path.string(), lines.size() + 1, reason_of(error)));
    }
  }
  if (lines.empty())
    throw DataError(fmt::format(
        "{} must hold a session; got no complete line; the run ended before its first step", path.string()));
  return lines;
}

}  // namespace colonnade::audit
