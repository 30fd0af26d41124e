// See conversion.h. A conversion is a list of files, each a list of items, each of which reads a few slices.
#include "colonnade/job/conversion.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/distributed_writer.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/config/dump.h"
#include "colonnade/convert/megatron/writer.h"
#include "colonnade/job/conversion_source.h"
#include "colonnade/job/step_files.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/export_class.h"
#include "colonnade/models/hf/names.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using checkpoint::Box;
using checkpoint::CheckpointReader;
using checkpoint::FileChecksum;
using checkpoint::Segment;
using checkpoint::Sizes;
using checkpoint::Slice;
using nlohmann::json;

constexpr const char* kSuffix = ".converting";
constexpr const char* kProgressName = "conversion.json";  ///< in the staging folder

struct TargetFile {
  std::string name;
  std::vector<Item> items;
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const Item& item : items) sum += item.bytes();
    return sum;
  }
};

/// A written file: its checksum, or its segments.
struct WrittenFile {
  FileChecksum sum;
  std::string segments;
};

/// Plans, writes and publishes one conversion.
class Conversion {
 public:
  explicit Conversion(const ConversionOptions& options)
      : options_(options),
        opened_(options),
        source_(opened_.reader()),
        run_(opened_.run()),
        staging_(checkpoint::strip_trailing_slash(options.target).string() + kSuffix) {}

  ConversionReport run() {
    const auto begin = std::chrono::steady_clock::now();
    require_target();
    opened_.require_tensors(report_);
    plan();
    open_staging();
    write_files();
    complete();
    publish();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report_;
  }

 private:
  [[nodiscard]] bool to(CheckpointFormat format) const { return options_.to == format; }

  void require_target() const {
    std::error_code absent;
    if (fs::exists(options_.target, absent) &&
        (!fs::is_directory(options_.target, absent) || !fs::is_empty(options_.target, absent)))
      throw ConfigError(
          fmt::format("--to must name a new or empty folder; got {}; choose another, or remove it",
                      options_.target.string()));
    if (to(CheckpointFormat::kHuggingFace) && !opened_.naming())
      throw ConfigError(
          fmt::format("--to hf: a Hugging Face class must express the model; got none: {}; convert to "
                      "native: or megatron:",
                      models::hf::export_text(run_.model)));
  }

  // ---- files

  /// Divides items among files of at most shard_bytes; `name` gives the name of file i of n.
  void add_files(std::vector<Item> items, const std::function<std::string(std::size_t, std::size_t)>& name) {
    std::vector<std::vector<Item>> shards;
    std::uint64_t bytes = options_.shard_bytes + 1;
    for (Item& item : items) {
      if (bytes + item.bytes() > options_.shard_bytes || shards.empty()) {
        shards.emplace_back();
        bytes = 0;
      }
      bytes += item.bytes();
      shards.back().push_back(std::move(item));
    }
    for (std::size_t i = 0; i < shards.size(); ++i)
      files_.push_back({name(i, shards.size()), std::move(shards[i])});
  }

  void plan() {
    step_ = source_.state().is_object() ? source_.state().at("iteration").get<std::int64_t>() : 0;
    if (to(CheckpointFormat::kMegatron)) {
      folder_ = step_ == 0 && !opened_.carries_optimizer() ? "release" : fmt::format("iter_{:07}", step_);
      add_files(opened_.megatron_items(),
                [](std::size_t i, std::size_t) { return fmt::format("__0_{}.distcp", i); });
    } else {
      if (to(CheckpointFormat::kNative))
        folder_ = fs::path("checkpoints") / checkpoint::step_folder_name(step_);
      add_files(opened_.model_items(), [](std::size_t i, std::size_t n) {
        return n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
      });
      model_files_ = files_.size();
      add_files(opened_.optimizer_items(),
                [](std::size_t i, std::size_t) { return fmt::format("optimizer-{:05}.safetensors", i); });
    }
    for (const TargetFile& file : files_) progress_.total_bytes += file.bytes();
    report_.files = files_.size();
  }

  /// Identity of this conversion: the same source, options and version continue it.
  [[nodiscard]] json identity() const {
    json files = json::array();
    for (const TargetFile& file : files_) files.push_back({file.name, file.bytes(), file.items.size()});
    std::error_code absent;
    const auto changed = fs::last_write_time(source_.folder(), absent).time_since_epoch().count();
    return {{"source", fs::absolute(source_.folder()).string()},
            {"changed", changed},
            {"to", static_cast<int>(options_.to)},
            {"dtype", options_.dtype ? c10::toString(*options_.dtype) : ""},
            {"files", files}};
  }

  void open_staging() {
    std::error_code absent;
    const fs::path progress = staging_ / kProgressName;
    const json wanted = identity();
    if (fs::exists(progress, absent)) {
      const json kept = json::parse(read_file(progress), nullptr, /*allow_exceptions=*/false);
      if (kept.is_object() && kept.value("identity", json()) == wanted)
        for (const auto& [name, file] : kept.at("written").items())
          written_[name] = {{file.at(0), file.at(1)}, file.at(2)};
    }
    if (written_.empty()) fs::remove_all(staging_);
    report_.kept_files = written_.size();
    create_folders(staging_ / folder_);
    save_progress();
  }

  void save_progress() const {
    json written = json::object();
    for (const auto& [name, file] : written_)
      written[name] = {file.sum.bytes, file.sum.xxh3_128, file.segments};
    write_file_atomically(staging_ / kProgressName,
                          json{{"identity", identity()}, {"written", written}}.dump());
  }

  WrittenFile write_file(const TargetFile& file) {
    const fs::path path = staging_ / folder_ / file.name;
    WrittenFile written;
    if (to(CheckpointFormat::kMegatron)) {
      checkpoint::SegmentWriter writer(path);
      for (const Item& item : file.items) {
        for (const Slice& slice : item.read()) writer.add(slice);
        count(item);
      }
      written.segments = checkpoint::to_text(writer.finish());
      written.sum.bytes = fs::file_size(path);
      return written;
    }
    std::vector<checkpoint::TensorSpec> specs;
    std::map<std::string, const Item*> by_name;
    for (const Item& item : file.items) {
      specs.push_back({item.name, item.dtype, item.shape});
      by_name[item.name] = &item;
    }
    std::ranges::sort(specs, checkpoint::file_order);
    checkpoint::SafetensorsWriter writer(path, specs);
    for (const checkpoint::TensorSpec& spec : specs) {
      writer.write(by_name.at(spec.name)->read().at(0).data);
      count(*by_name.at(spec.name));
    }
    written.sum = writer.finish();
    return written;
  }

  void count(const Item& item) {
    const std::lock_guard lock(mutex_);
    progress_.bytes += item.bytes();
  }

  void write_files() {
    std::vector<const TargetFile*> left;
    for (const TargetFile& file : files_)
      if (written_.contains(file.name))
        progress_.bytes += file.bytes();
      else
        left.push_back(&file);
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    bool done = false;
    std::condition_variable changed;
    const auto begin = std::chrono::steady_clock::now();
    const auto work = [&] {
      const at::NoGradGuard no_grad;
      for (std::size_t i = next++; i < left.size(); i = next++) {
        try {
          if (options_.on_file) options_.on_file(left[i]->name);
          WrittenFile written = write_file(*left[i]);
          const std::lock_guard lock(mutex_);
          written_[left[i]->name] = std::move(written);
          save_progress();
        } catch (...) {
          const std::lock_guard lock(mutex_);
          if (!failure) failure = std::current_exception();
          next = left.size();
        }
      }
    };
    const auto tell = [&] {
      std::unique_lock lock(mutex_);
      while (!changed.wait_for(lock, std::chrono::seconds(1), [&] { return done; })) {
        progress_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (options_.on_progress) options_.on_progress(progress_);
      }
    };
    std::vector<std::thread> workers;
    const auto count =
        std::min<std::size_t>(static_cast<std::size_t>(std::max(options_.workers, 1)), left.size());
    for (std::size_t i = 0; i < count; ++i) workers.emplace_back(work);
    std::thread teller(tell);
    for (std::thread& worker : workers) worker.join();
    {
      const std::lock_guard lock(mutex_);
      done = true;
    }
    changed.notify_one();
    teller.join();
    if (failure) std::rethrow_exception(failure);
    for (const auto& [name, file] : written_) report_.bytes += file.sum.bytes;
  }

  // ---- what completes a folder

  void complete() {
    if (to(CheckpointFormat::kMegatron)) return complete_megatron();
    std::map<std::string, std::string> texts;
    if (const json config = hf_config(); !config.is_null()) texts["config.json"] = config.dump(2) + "\n";
    if (model_files_ > 1) texts["model.safetensors.index.json"] = index_text();
    for (const auto& [name, text] : step_files(run_, nullptr, &source_).files) texts.try_emplace(name, text);
    std::map<std::string, FileChecksum> sums;
    for (const auto& [name, text] : texts) {
      write_file_atomically(staging_ / folder_ / name, text);
      sums[name] = {text.size(), checkpoint::checksum_of(text)};
    }
    for (const TargetFile& file : files_) report_.target_tensors += file.items.size();
    if (!to(CheckpointFormat::kNative)) return;
    for (const auto& [name, file] : written_) sums[name] = file.sum;
    write_file_atomically(staging_ / folder_ / checkpoint::kManifestName,
                          checkpoint::to_text(manifest(sums)));
    checkpoint::set_latest(staging_ / "checkpoints", step_);
  }

  [[nodiscard]] json hf_config() const {
    json config = models::hf::config_of(run_.model);
    if (config.is_null()) return config;
    const json& given = source_.hf_config();
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (given.is_object() && given.contains(key)) config[key] = given.at(key);
    const char* dtype = "float32";
    const at::ScalarType stored = files_.front().items.front().dtype;
    if (stored == at::kBFloat16) dtype = "bfloat16";
    if (stored == at::kHalf) dtype = "float16";
    config["torch_dtype"] = config["dtype"] = dtype;
    return config;
  }

  [[nodiscard]] std::string index_text() const {
    json weights = json::object();
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < model_files_; ++i)
      for (const Item& item : files_[i].items) {
        weights[item.name] = files_[i].name;
        bytes += item.bytes();
      }
    return json{{"metadata", {{"total_size", bytes}}}, {"weight_map", weights}}.dump(2) + "\n";
  }

  [[nodiscard]] checkpoint::Manifest manifest(const std::map<std::string, FileChecksum>& sums) const {
    checkpoint::Manifest manifest{.step = step_, .tensors = {}, .files = sums, .state = native_state()};
    for (std::size_t i = 0; i < files_.size(); ++i)
      for (const Item& item : files_[i].items) {
        checkpoint::GlobalTensor& entry = manifest.tensors[item.name];
        entry.kind = i < model_files_ ? "model" : "optimizer";
        entry.dtype = item.dtype;
        entry.shape = item.shape;
        entry.chunks = {{files_[i].name, item.name, {Sizes(item.shape.size(), 0), item.shape}}};
      }
    return manifest;
  }

  /// State of a native checkpoint; that of weights alone is one of a run before its first step.
  [[nodiscard]] json native_state() const {
    json state = source_.state();
    if (!state.is_object())
      state = {{"iteration", 0},
               {"consumed_samples", 0},
               {"skipped", 0},
               {"optimizer", {{"kind", "adam"}, {"steps", 0}}},
               {"loss_scale", {{"scale", 1.0}, {"growth", 0}, {"hysteresis", 2}, {"dynamic", false}}}};
    json settings = json::object();
    for (const auto& [key, value] : config::values(run_)) settings[key] = value;
    state["settings"] = settings;
    state["model"]["of_settings"] = true;
    state["converted_from"] = fs::absolute(source_.folder()).string();
    return state;
  }

  void complete_megatron() {
    std::vector<Segment> segments;
    for (const auto& [name, file] : written_)
      for (Segment& segment : checkpoint::segments_of(file.segments)) segments.push_back(std::move(segment));
    require_megatron_covered(segments);
    checkpoint::SegmentWriter objects(staging_ / folder_ / "__0_objects.distcp");
    for (const std::string& key : convert::megatron::extra_state_keys(run_.model))
      objects.add_object(key, convert::megatron::extra_state_pickle());
    for (Segment& segment : objects.finish()) segments.push_back(std::move(segment));
    const json state = source_.state().is_object() ? source_.state() : json::object();
    const convert::megatron::CommonState common{
        .iteration = step_,
        .consumed_samples = state.value("consumed_samples", std::int64_t{0}),
        .optimizer_steps = state.value(json::json_pointer("/optimizer/steps"), std::int64_t{0}),
        .has_optimizer = opened_.carries_optimizer(),
        .lr_schedule = opened_.carries_optimizer() ? state.value("lr_schedule", json()) : json(),
        .state = native_state()};
    convert::megatron::write_common_file(staging_ / folder_ / "common.pt", run_, common);
    write_file_atomically(staging_ / folder_ / ".metadata", checkpoint::distributed_metadata(segments));
    write_file_atomically(staging_ / folder_ / "metadata.json", convert::megatron::kMetadataFile);
    write_file_atomically(staging_ / "latest_checkpointed_iteration.txt",
                          folder_ == "release" ? "release" : std::to_string(step_));
  }

  void require_megatron_covered(const std::vector<Segment>& segments) {
    std::map<std::string, std::vector<Box>> boxes;
    std::map<std::string, Sizes> shapes;
    for (const Segment& segment : segments) {
      boxes[segment.key].push_back(segment.box);
      shapes[segment.key] = segment.shape;
    }
    for (const auto& [name, chunks] : boxes)
      if (const auto problem = checkpoint::coverage_problem(shapes[name], chunks))
        throw DataError(fmt::format("{}: '{}' must be filled once; got: {}; report this model",
                                    options_.target.string(), name, *problem));
    report_.target_tensors = boxes.size();
  }

  void publish() {
    fs::remove(staging_ / kProgressName);
    sync_path(staging_ / folder_);
    sync_path(staging_);
    std::error_code absent;
    fs::remove(options_.target, absent);  // an empty folder
    fs::rename(staging_, options_.target);
    const fs::path parent = fs::absolute(checkpoint::strip_trailing_slash(options_.target)).parent_path();
    sync_path(parent);
  }

  const ConversionOptions& options_;
  ConversionSource opened_;
  const CheckpointReader& source_;
  const config::Run& run_;
  fs::path staging_, folder_;  ///< folder_: of the tensors, in the staging folder
  std::int64_t step_ = 0;
  std::vector<TargetFile> files_;
  std::size_t model_files_ = 0;
  std::map<std::string, WrittenFile> written_;
  std::mutex mutex_;  ///< guards written_ and progress_ while files are written
  ConversionProgress progress_;
  ConversionReport report_;
};

}  // namespace

ConversionReport convert(const ConversionOptions& options) { return Conversion(options).run(); }

}  // namespace colonnade::job
