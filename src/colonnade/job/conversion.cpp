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
#include "colonnade/config/derive.h"
#include "colonnade/config/dump.h"
#include "colonnade/config/parse.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/convert/megatron/reader.h"
#include "colonnade/convert/megatron/writer.h"
#include "colonnade/convert/open.h"
#include "colonnade/convert/slices.h"
#include "colonnade/job/folder_tensors.h"
#include "colonnade/job/model_settings.h"
#include "colonnade/job/step_files.h"
#include "colonnade/layout/params/gpt.h"
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

/// What is written as one piece: a tensor of a safetensors file, or chunks of a *.distcp file.
struct Item {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  Sizes shape;  ///< of the values that are read
  std::function<std::vector<Slice>()> read;
  [[nodiscard]] std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(Box{{}, shape}.numel()) * c10::elementSize(dtype);
  }
};

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

Slice whole_slice(const std::string& name, const at::Tensor& data) {
  const Sizes shape = data.sizes().vec();
  return {.name = name, .global_shape = shape, .offset = Sizes(shape.size(), 0), .data = data};
}

CheckpointReader open_source(const ConversionOptions& o) {
  switch (o.from) {
    case CheckpointFormat::kHuggingFace:
      return convert::open_hugging_face(o.source);
    case CheckpointFormat::kNative:
      if (const auto found = checkpoint::find_checkpoint(o.source, o.step))
        return CheckpointReader::open_native(found->folder);
      break;
    case CheckpointFormat::kMegatron:
      if (const auto found = convert::megatron::find_folder(o.source, o.step))
        return convert::megatron::open(*found,
                                       {.cuts_vocabulary = o.to == CheckpointFormat::kHuggingFace});
  }
  throw DataError(fmt::format("--from: {} must hold a checkpoint of {}; got none; check the path", o.source.string(),
                              o.from == CheckpointFormat::kNative ? "Colonnade" : "Megatron"));
}

/// The settings of the source: its model's, and those of its run.
config::Run settings_of(const CheckpointReader& source) {
  config::Run run;
  std::map<std::string, std::string> settings = model_settings(run, source);
  if (source.state().is_object() && source.state().contains("settings")) {
    for (const auto& [key, value] : source.state().at("settings").items())
      settings.try_emplace(key, value.get<std::string>());
  } else {
    (void)untie_stored_output(settings, source);
  }
  settings.erase("config");
  config::set(run, "model", settings.contains("model") ? settings["model"] : "gpt");
  for (const auto& [key, value] : settings)
    if (key != "model") config::set(run, key, value);
  run.parallel = {};
  config::derive(run);
  return run;
}

/// Plans, writes and publishes one conversion.
class Conversion {
 public:
  explicit Conversion(const ConversionOptions& options)
      : options_(options),
        source_(open_source(options)),
        run_(settings_of(source_)),
        naming_(models::hf::naming_of(run_.model)),
        staging_(checkpoint::strip_trailing_slash(options.target).string() + kSuffix) {}

  ConversionReport run() {
    const auto begin = std::chrono::steady_clock::now();
    require_target();
    require_source_tensors();
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
      throw ConfigError(fmt::format("--to must name a new or empty folder; got {}; choose another, or remove it",
                                    options_.target.string()));
    if (to(CheckpointFormat::kHuggingFace) && !naming_)
      throw ConfigError(fmt::format("--to hf: a Hugging Face class must express the model; got none: {}; convert to "
                                    "native: or megatron:",
                                    models::hf::export_text(run_.model)));
  }

  // ---- tensors

  /// Names of the model's tensors in the source.
  std::vector<std::string> model_names() const {
    std::vector<std::string> names;
    for (const layout::ParamSpec& spec : layout::model_params(run_.model, {}))
      for (const auto& tensor : models::hf::tensors_of(spec, naming_)) names.push_back(tensor.name);
    for (const models::hf::Copy& copy : models::hf::copies_to_save(run_.model)) names.push_back(copy.name);
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  /// Every tensor of the source is one of the model, and the other way round.
  void require_source_tensors() {
    require_model_tensors(source_, run_.model, /*logs_unread=*/true);
    const std::vector<std::string> wanted = model_names();
    std::vector<std::string> held;
    std::size_t states = 0;
    for (const std::string& name : source_.names())
      if (name.starts_with("optimizer.")) ++states;
      else held.push_back(name);
    report_.source_tensors = held.size() + states;
    std::vector<std::string> missing, unused;
    std::ranges::set_difference(wanted, held, std::back_inserter(missing));
    std::ranges::set_difference(held, wanted, std::back_inserter(unused));
    std::erase_if(missing, [this](const std::string& name) { return is_copy(name); });
    if (!missing.empty())
      throw DataError(fmt::format("{}: every tensor of the model must be there; got {} missing: {}; copy it again",
                                  source_.folder().string(), missing.size(), checkpoint::first_names(missing)));
    report_.used_tensors = held.size() - unused.size();
    if (!unused.empty())
      report_.notes.push_back(fmt::format("{} tensors that no model uses were left out: {}", unused.size(),
                                          checkpoint::first_names(unused)));
    carries_optimizer_ = states > 0 && options_.with_optimizer && !to(CheckpointFormat::kHuggingFace);
    if (states > 0 && !carries_optimizer_)
      report_.notes.push_back(fmt::format("{} tensors of the optimizer were left out", states));
    if (carries_optimizer_) report_.used_tensors += states;
  }

  [[nodiscard]] bool is_copy(const std::string& name) const {
    return std::ranges::any_of(models::hf::copies_to_save(run_.model),
                               [&](const models::hf::Copy& copy) { return copy.name == name; });
  }

  [[nodiscard]] at::ScalarType target_dtype(at::ScalarType stored) const {
    return options_.dtype && at::isFloatingType(stored) ? *options_.dtype : stored;
  }

  /// A tensor of the source under its own name.
  Item same(const std::string& name, bool of_model) const {
    const std::string stored = source_.has(name) ? name : original_of(name);
    const auto info = source_.info(stored);
    const at::ScalarType dtype = of_model ? target_dtype(info.dtype) : info.dtype;
    return {.name = name, .dtype = dtype, .shape = info.shape, .read = [this, name, stored, info, dtype] {
              const at::Tensor data = at::empty(info.shape, at::TensorOptions().dtype(dtype));
              source_.read_into({stored, info.shape, Sizes(info.shape.size(), 0), data});
              return std::vector<Slice>{whole_slice(name, data)};
            }};
  }

  [[nodiscard]] std::string original_of(const std::string& copy) const {
    for (const models::hf::Copy& each : models::hf::copies_to_save(run_.model))
      if (each.name == copy) return each.original;
    return copy;
  }

  /// A box of our parameter from the source's tensors of the model.
  at::Tensor read_parameter(const layout::ParamSpec& spec, const Box& box, at::ScalarType dtype) const {
    const at::Tensor data = at::empty(box.shape, at::TensorOptions().dtype(dtype));
    const Slice ours{.name = spec.name, .global_shape = spec.shape, .offset = box.offset, .data = data};
    for (const Slice& theirs : convert::box_slices(spec, ours, naming_)) source_.read_into(theirs);
    return data;
  }

  /// Boxes in which a parameter is converted: each expert, or the whole.
  static std::vector<Box> boxes_of(const layout::ParamSpec& spec) {
    const bool experts = spec.param_group == layout::ParamGroup::kExpert && spec.shape.size() > 1;
    std::vector<Box> boxes;
    for (std::int64_t e = 0; e < (experts ? spec.shape[0] : 1); ++e) {
      Box box{Sizes(spec.shape.size(), 0), spec.shape};
      if (experts) box.offset[0] = e, box.shape[0] = 1;
      boxes.push_back(std::move(box));
    }
    return boxes;
  }

  void add_megatron_items(std::vector<Item>& items) const {
    for (const layout::ParamSpec& spec : layout::model_params(run_.model, {})) {
      const at::ScalarType stored = source_.info(models::hf::tensors_of(spec, naming_).front().name).dtype;
      for (const Box& box : boxes_of(spec)) {
        const at::ScalarType dtype = spec.trained ? target_dtype(stored) : stored;
        items.push_back({spec.name, dtype, box.shape, [this, spec, box, dtype] {
                           const at::Tensor data = read_parameter(spec, box, dtype);
                           return convert::megatron::megatron_slices(
                               spec, {spec.name, spec.shape, box.offset, data}, run_.model);
                         }});
        if (carries_optimizer_ && spec.trained) add_megatron_states(items, spec, box);
      }
    }
  }

  /// Optimizer states of a box; masters that are the weights themselves are read from these.
  void add_megatron_states(std::vector<Item>& items, const layout::ParamSpec& spec, const Box& box) const {
    for (const char* state : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
      const std::string ours = fmt::format("optimizer.{}.{}", state, spec.name);
      const bool is_master = std::string_view(state) == "fp32_param";
      if (!is_master && !source_.has(ours))
        throw DataError(fmt::format("{}: the optimizer must have the states of Adam for Megatron; got no {}; add "
                                    "--no-optimizer",
                                    source_.folder().string(), ours));
      items.push_back({ours, at::kFloat, box.shape, [this, spec, box, state, ours] {
                         at::Tensor data;
                         if (source_.has(ours)) {
                           data = at::empty(box.shape, at::kFloat);
                           source_.read_into({ours, spec.shape, box.offset, data});
                         } else {
                           data = read_parameter(spec, box, at::kFloat);
                         }
                         return convert::megatron::megatron_slices(
                             spec, {spec.name, spec.shape, box.offset, data}, run_.model,
                             fmt::format("optimizer.state.{}.", convert::megatron::state_name(state)));
                       }});
    }
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
      std::vector<Item> items;
      add_megatron_items(items);
      folder_ = step_ == 0 && !carries_optimizer_ ? "release" : fmt::format("iter_{:07}", step_);
      add_files(std::move(items), [](std::size_t i, std::size_t) { return fmt::format("__0_{}.distcp", i); });
    } else {
      std::vector<Item> model, optimizer;
      for (const std::string& name : model_names()) model.push_back(same(name, true));
      for (const std::string& name : source_.names())
        if (carries_optimizer_ && name.starts_with("optimizer.")) optimizer.push_back(same(name, false));
      if (to(CheckpointFormat::kNative)) folder_ = fs::path("checkpoints") / checkpoint::step_folder_name(step_);
      add_files(std::move(model), [](std::size_t i, std::size_t n) {
        return n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
      });
      model_files_ = files_.size();
      add_files(std::move(optimizer), [](std::size_t i, std::size_t) { return fmt::format("optimizer-{:05}.safetensors", i); });
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
    for (const auto& [name, file] : written_) written[name] = {file.sum.bytes, file.sum.xxh3_128, file.segments};
    write_file_atomically(staging_ / kProgressName, json{{"identity", identity()}, {"written", written}}.dump());
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
      if (written_.contains(file.name)) progress_.bytes += file.bytes();
      else left.push_back(&file);
    std::atomic<std::size_t> next{0};
    std::exception_ptr failure;
    bool done = false;
    std::condition_variable changed;
    const auto begin = std::chrono::steady_clock::now();
    const auto work = [&] {
      const at::NoGradGuard no_grad;
      for (std::size_t i = next++; i < left.size(); i = next++) {
        try {
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
    const auto count = std::min<std::size_t>(static_cast<std::size_t>(std::max(options_.workers, 1)), left.size());
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
    write_file_atomically(staging_ / folder_ / checkpoint::kManifestName, checkpoint::to_text(manifest(sums)));
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
        .has_optimizer = carries_optimizer_,
        .lr_schedule = carries_optimizer_ ? state.value("lr_schedule", json()) : json()};
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
        throw DataError(fmt::format("{}: '{}' must be filled once; got: {}; report this model", options_.target.string(),
                                    name, *problem));
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
  CheckpointReader source_;
  config::Run run_;
  std::optional<models::hf::Naming> naming_;
  fs::path staging_, folder_;  ///< folder_: of the tensors, in the staging folder
  std::int64_t step_ = 0;
  bool carries_optimizer_ = false;
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
