// See ledger.h.
#include "colonnade/train/ledger.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/config/dump.h"
#include "colonnade/data/indexed_dataset.h"
#include "colonnade/data/sft_conversations.h"
#include "colonnade/job/continued.h"
#include "colonnade/train/append_file.h"
#include "colonnade/train/metrics.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr int kVersion = 1;

json loaded_json(const Loaded& at) { return {{"step", at.step}, {"samples", at.samples}}; }
Loaded to_loaded(const json& at) {
  return {at.at("step").get<std::int64_t>(), at.at("samples").get<std::int64_t>()};
}

std::string to_text(const LedgerLine& line) {
  json files = json::array();
  for (const DataFile& f : line.files) {
    files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"changed_ns", f.changed_ns}});
    if (!f.xxh3_128.empty()) files.back()["xxh3_128"] = f.xxh3_128;
  }
  return json{{"version", kVersion},
              {"began", line.began},
              {"step", line.loaded.step},
              {"samples", line.loaded.samples},
              {"from", line.from.empty() ? json() : json(line.from)},
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
                  .loaded = to_loaded(object),
                  .from = object.at("from").is_null() ? "" : object.at("from").get<std::string>(),
                  .settings = object.at("settings").get<decltype(LedgerLine::settings)>(),
                  .data = nlohmann::json(object.at("data")),
                  .tokenizer = nlohmann::json(object.at("tokenizer"))};
  if (const json& reached = object.at("reached"); !reached.is_null()) line.reached = to_loaded(reached);
  for (const json& f : object.at("files"))
    line.files.push_back({f.at("path").get<std::string>(), f.at("bytes").get<std::uint64_t>(),
                          f.at("changed_ns").get<std::int64_t>(), f.value("xxh3_128", "")});
  return line;
}

/// What ends with an end of line, each without it; the rest of a write that a crash cut short is left out.
std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    if (end > at) lines.push_back(text.substr(at, end - at));
  return lines;
}

void cut_torn_end(const fs::path& path) {
  if (!fs::exists(path)) return;
  const std::string text = read_file(path);
  if (text.empty() || text.back() == '\n') return;
  write_file_atomically(path, text.substr(0, text.rfind('\n') + 1));
}

}  // namespace

DataFile file_now(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0)
    throw DataError(fmt::format("{}: cannot be read; {}", path, std::strerror(errno)));
  DataFile file{.path = path,
                .bytes = static_cast<std::uint64_t>(about.st_size),
                .changed_ns = about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec};
  if (!path.ends_with(".bin")) file.xxh3_128 = checkpoint::sum_of_file(path).xxh3_128;
  return file;
}

std::vector<DataFile> data_files(const config::Run& run, const data::Splits& splits) {
  if (run.data.mock_data) return {};
  std::set<std::string> names, paths;
  for (const auto& split : splits)
    if (split != nullptr)
      for (const data::SampleOrder& order : split->samples().orders()) names.insert(order.name);
  for (const std::string& name : names) {
    if (run.data.sft) {
      for (const fs::path& file : data::chat_files(name)) paths.insert(fs::absolute(file).lexically_normal());
    } else {
      for (const fs::path& file : {data::idx_path(name), data::bin_path(name)})
        paths.insert(fs::absolute(file).lexically_normal());
    }
  }
  std::vector<DataFile> files;
  for (const std::string& path : paths) files.push_back(file_now(path));
  return files;
}

void add_to_ledger(const RunFolder& folder, LedgerLine line) {
  if (line.loaded.step == 0) {
    keep_aside(folder.ledger());
  } else if (const auto last = last_step(folder.metrics())) {
    line.reached = Loaded{last->iteration, last->consumed_samples};
  }
  cut_torn_end(folder.ledger());
  AppendFile(folder.ledger()).append(to_text(line));
}

void write_session(const RunFolder& folder, const config::Run& run, const data::Splits& splits,
                   LedgerLine line) {
  make_run_folder(folder);
  try {
    if (!line.from.empty()) line.from = std::filesystem::absolute(line.from).string();
    line.began = local_time("%Y-%m-%d %H:%M:%S");
    line.settings = config::values(job::with_absolute_paths(run));
    line.data = job::data_state(splits);
    line.files = data_files(run, splits);
    add_to_ledger(folder, std::move(line));
  } catch (const std::exception& error) {
    log::warning("ledger: {}; `colonnade data audit` will not know this session", error.what());
  }
}

std::vector<LedgerLine> read_ledger(const RunFolder& folder) {
  const fs::path path = folder.ledger();
  if (!fs::exists(path))
    throw DataError(fmt::format(
        "{}: must be there; got a folder without it; name the folder (--save) of a run that trained with this "
        "version",
        path.string()));
  std::vector<LedgerLine> lines;
  for (const std::string& text : whole_lines(read_file(path))) {
    try {
      lines.push_back(to_line(text));
    } catch (const std::exception& error) {
      throw DataError(
          fmt::format("{} line {}: must be a session in JSON; got {}; mend it or move the file away",
                      path.string(), lines.size() + 1, error.what()));
    }
  }
  if (lines.empty())
    throw DataError(fmt::format(
        "{}: must hold a session; got no whole line; the run ended before its first step", path.string()));
  return lines;
}

}  // namespace colonnade::train
