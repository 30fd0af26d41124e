// See wandb.h.
#include "colonnade/record/wandb.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>
#include <random>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/schema.h"
#include "colonnade/record/crc.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using protozero::pbf_tag_type;
using protozero::pbf_writer;

constexpr std::size_t kBlock = 32768, kFrameHead = 7;

// Field numbers of Record, RunRecord and of ConfigItem, HistoryItem and SummaryItem.
enum RecordField : pbf_tag_type {
  kNum = 1,
  kHistory = 2,
  kSummaryUpdate = 3,
  kRun = 17,
  kExit = 18,
  kHeader = 21
};
enum RunField : pbf_tag_type {
  kRunId = 1,
  kEntity = 2,
  kProject = 3,
  kConfig = 4,
  kDisplayName = 8,
  kHost = 13,
  kStartTime = 17,
  kResumed = 18
};
enum ItemField : pbf_tag_type { kKey = 1, kNestedKey = 2, kValueJson = 16 };

std::string log_frame(char type, std::string_view data) {
  std::string checked(1, type);
  checked += data;
  return little_endian(crc32(checked), 4) + little_endian(data.size(), 2) + checked;
}

/// A number in the JSON of Python, which has NaN and Infinity.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return nlohmann::json(value).dump();
}

void add_item(pbf_writer& parent, pbf_tag_type field, ItemField key_field, const std::string& key,
              const std::string& json_text) {
  pbf_writer item(parent, field);
  item.add_string(key_field, key);
  item.add_string(kValueJson, json_text);
}

std::string setting_json(const config::Run& run, const config::Setting& s) {
  const std::optional<config::Words> words = s.get(run);
  if (!words) return "null";
  if (s.kind == config::Kind::kList) return nlohmann::json(*words).dump();
  const std::string text = config::text_of(run, s);
  const bool is_literal =
      s.kind == config::Kind::kSwitch || s.kind == config::Kind::kInteger || s.kind == config::Kind::kNumber;
  return is_literal && nlohmann::json::accept(text) ? text : nlohmann::json(text).dump();
}

void add_config(pbf_writer& run_record, const config::Run& run) {
  constexpr pbf_tag_type kUpdate = 1;
  pbf_writer settings(run_record, kConfig);
  add_item(settings, kUpdate, kKey, "_wandb", "{}");
  add_item(settings, kUpdate, kKey, "world_size", std::to_string(run.parallel.world_size));
  for (const config::Setting& s : config::schema())
    if (s.get != nullptr) add_item(settings, kUpdate, kKey, s.key, setting_json(run, s));
}

std::string new_run_id() {
  constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string id(8, ' ');
  for (char& c : id) c = kDigits[random() % kDigits.size()];
  return id;
}

/// Creates the folder of an offline run and its files/. Returns the path of its file.
fs::path prepare_wandb_file(const WandbRun& run) {
  std::error_code reason;
  fs::create_directories(run.folder / "files", reason);
  if (reason)
    throw Error(
        fmt::format("{}: the folder of the W&B run must be writable; {}; choose another --wandb-save-dir",
                    run.folder.string(), reason.message()));
  return run.folder / fmt::format("run-{}.wandb", run.id);
}

}  // namespace

std::string wandb_header() { return ":W&B" + little_endian(0xbee1, 2) + little_endian(0, 1); }

std::string wandb_frames(std::string_view data, std::uint64_t offset) {
  constexpr char kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4;
  std::string out;
  bool is_first = true;
  for (;;) {
    std::size_t space = kBlock - (offset + out.size()) % kBlock;
    if (space < kFrameHead) {
      out.append(space, '\0');
      space = kBlock;
    }
    const std::string_view part = data.substr(0, space - kFrameHead);
    data.remove_prefix(part.size());
    if (data.empty()) return out + log_frame(is_first ? kFull : kLast, part);
    out += log_frame(is_first ? kFirst : kMiddle, part);
    is_first = false;
  }
}

WandbRun make_wandb_run(const config::Run& run, const RunFolder& folder, bool resumed) {
  const config::Logging& l = run.logging;
  const bool has_id = resumed && fs::exists(folder.wandb_id());
  const std::string id = has_id ? read_file(folder.wandb_id()) : new_run_id();
  if (!has_id) write_file_atomically(folder.wandb_id(), id);
  const fs::path parent = (l.wandb_save_dir.empty() ? folder.root : fs::path(l.wandb_save_dir)) / "wandb";
  const std::string name = fmt::format("offline-run-{}-{}", local_time("%Y%m%d_%H%M%S"), id);
  fs::path free = parent / name;
  for (int n = 2; fs::exists(free); ++n) free = parent / fmt::format("{}-{}", name, n);
  const fs::path root = fs::absolute(folder.root).lexically_normal();
  const fs::path last = root.has_filename() ? root.filename() : root.parent_path().filename();
  return {.id = id,
          .name = l.wandb_exp_name.empty() ? last.string() : l.wandb_exp_name,
          .folder = free,
          .resumed = has_id};
}

template <typename Fill>
void WandbFile::write(std::uint32_t kind, const Fill& fill) {
  std::string bytes;
  {
    pbf_writer record(bytes);
    record.add_int64(kNum, ++records_);
    pbf_writer body(record, kind);
    fill(body);
  }
  file_.append(wandb_frames(bytes, file_.size()));
}

WandbFile::WandbFile(const WandbRun& run, const config::Run& settings) : file_(prepare_wandb_file(run)) {
  file_.append(wandb_header());
  write(kHeader, [](pbf_writer& header) {
    pbf_writer version(header, 1);
    version.add_string(1, "colonnade");
    version.add_string(2, "0.40.0");  // oldest wandb that reads these records
  });
  write(kRun, [&](pbf_writer& record) {
    record.add_string(kRunId, run.id);
    if (!settings.logging.wandb_entity.empty()) record.add_string(kEntity, settings.logging.wandb_entity);
    record.add_string(kProject, settings.logging.wandb_project);
    add_config(record, settings);
    record.add_string(kDisplayName, run.name);
    record.add_string(kHost, host_name());
    {
      using std::chrono::duration_cast;
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      const auto seconds = duration_cast<std::chrono::seconds>(now);
      pbf_writer time(record, kStartTime);
      time.add_int64(1, seconds.count());
      time.add_int32(
          2, static_cast<std::int32_t>(duration_cast<std::chrono::nanoseconds>(now - seconds).count()));
    }
    if (run.resumed) record.add_bool(kResumed, true);
  });
}

double WandbFile::runtime_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void WandbFile::row(std::int64_t step, const std::vector<Scalar>& scalars, bool updates_summary) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string timestamp = json_number(std::chrono::duration<double>(now).count());
  const std::string runtime = json_number(runtime_s());
  const auto add_items = [&](pbf_writer& body) {
    for (const Scalar& scalar : scalars) add_item(body, 1, kNestedKey, scalar.tag, json_number(scalar.value));
    add_item(body, 1, kNestedKey, "_timestamp", timestamp);
    add_item(body, 1, kNestedKey, "_runtime", runtime);
    add_item(body, 1, kNestedKey, "_step", std::to_string(step));
  };
  write(kHistory, [&](pbf_writer& history) {
    add_items(history);
    pbf_writer number(history, 2);
    number.add_int64(1, step);
  });
  if (updates_summary) write(kSummaryUpdate, add_items);
}

void WandbFile::finish(int exit_code) {
  write(kExit, [&](pbf_writer& exit) {
    exit.add_int32(1, exit_code);
    exit.add_int32(2, static_cast<std::int32_t>(runtime_s()));
  });
}

}  // namespace colonnade::record
