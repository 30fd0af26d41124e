// See save.h. The order of steps is the guarantee: plan, stage, write, agree, publish, update `latest`.
#include "colonnade/checkpoint/save.h"

#include <fmt/format.h>

#include <chrono>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/publish.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/checkpoint/save_files.h"
#include "colonnade/checkpoint/save_plan.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

GlobalTensor in_manifest(const PlannedTensor& tensor) {
  return {.dtype = tensor.dtype, .shape = tensor.shape};
}

Manifest manifest_of(const SavePlan& plan, std::int64_t step, const FileChecksums& files, const json& state) {
  Manifest manifest{.step = step, .files = files, .state = state};
  for (const PlannedTensor& tensor : plan.model) {
    GlobalTensor& entry = manifest.tensors[tensor.name] = in_manifest(tensor);
    entry.kind = "model";
    entry.chunks = {{plan.model_files[static_cast<std::size_t>(tensor.writer)],
                     tensor.name,
                     {Sizes(tensor.shape.size(), 0), tensor.shape}}};
  }
  for (const PlannedTensor& tensor : plan.optimizer) {
    GlobalTensor& entry = manifest.tensors[tensor.name] = in_manifest(tensor);
    entry.kind = "optimizer";
    for (const PlannedSlice& slice : tensor.slices)
      entry.chunks.push_back(
          {optimizer_file(slice.rank), chunk_key(tensor.name, tensor.shape, slice.box), slice.box});
  }
  return manifest;
}

/// model.safetensors.index.json in the format of Hugging Face.
std::string index_text(const SavePlan& plan) {
  json weights = json::object();
  std::int64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.model) {
    weights[tensor.name] = plan.model_files[static_cast<std::size_t>(tensor.writer)];
    bytes += Box{{}, tensor.shape}.numel() * static_cast<std::int64_t>(c10::elementSize(tensor.dtype));
  }
  return json{{"metadata", {{"total_size", bytes}}}, {"weight_map", weights}}.dump(2) + "\n";
}

void write_text(const fs::path& folder, const std::string& name, const std::string& text,
                FileChecksums& files) {
  write_file_atomically(folder / name, text);
  files[name] = {text.size(), checksum_of(text)};
}

/// One save on one rank.
class SaveProcess {
 public:
  SaveProcess(const fs::path& run_folder, std::int64_t step, const comm::Group& world,
              const SaveOptions& options)
      : checkpoints_(run_folder / "checkpoints"), step_(step), world_(world), options_(options) {
    result_.folder = is_export() ? options.export_folder : checkpoints_ / step_folder_name(step);
    staging_ = with_suffix(result_.folder, kStagingSuffix);
  }

  SaveResult run(const Snapshot& snapshot) {
    const auto begin = std::chrono::steady_clock::now();
    const SavePlan plan = plan_save(world_.all_gather_text(describe(snapshot), "checkpoint: slices"));
    stage();
    if (result_.ok) write(plan, snapshot);
    if (result_.ok) commit(plan, snapshot);
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result_;
  }

 private:
  void reach(std::string_view point) const {
    if (options_.on_point) options_.on_point(point);
  }
  [[nodiscard]] bool is_leader() const { return world_.rank() == 0; }
  [[nodiscard]] bool is_export() const { return !options_.export_folder.empty(); }

  void stage() {
    Problem problem;
    attempt(problem, [&] {
      reach("begin");
      if (is_leader()) make_staging(staging_);
    });
    share_result(problem, {}, "checkpoint: staging folder");
  }

  void write(const SavePlan& plan, const Snapshot& snapshot) {
    Problem problem;
    attempt(problem, [&] { reach("staged"); });
    FileChecksums files = write_model(plan, snapshot.model, world_, staging_, problem);
    attempt(problem, [&] {
      reach("writing");
      files.merge(write_optimizer(plan, snapshot.optimizer, world_.rank(), staging_));
      sync_path(staging_);
      reach("written");
    });
    files_ = share_result(problem, files, "checkpoint: files");
    for (const auto& [name, sum] : files_) result_.bytes += sum.bytes;
  }

  void commit(const SavePlan& plan, const Snapshot& snapshot) {
    Problem problem;
    if (is_leader()) {
      attempt(problem, [&] { complete(plan, snapshot); });
      attempt(problem, [&] {
        reach("rename");
        publish(staging_, result_.folder);
      });
      if (problem.empty() && !is_export()) update_latest(problem);
    }
    share_result(problem, {}, "checkpoint: published");
  }

  /// Writes index, config, other files and manifest, which complete the staging folder.
  void complete(const SavePlan& plan, const Snapshot& snapshot) {
    reach("manifest");
    for (const auto& [name, sum] : files_) {
      std::error_code missing;
      if (fs::file_size(staging_ / name, missing) != sum.bytes || missing)
        throw Error(fmt::format(
            "{} must be visible to rank 0 with {} bytes; got another size or no file; save into a "
            "folder shared by all ranks",
            (staging_ / name).string(), sum.bytes));
    }
    if (has_shards(plan)) write_text(staging_, "model.safetensors.index.json", index_text(plan), files_);
    if (!snapshot.hf_config.is_null())
      write_text(staging_, "config.json", snapshot.hf_config.dump(2) + "\n", files_);
    for (const auto& [name, bytes] : snapshot.files) {
      COL_CHECK(is_plain_name(name) && !files_.contains(name) && name != kManifestName,
                "save: other files must have unique plain names; got '{}'", name);
      write_text(staging_, name, bytes, files_);
    }
    if (is_export()) return;
    write_file_atomically(staging_ / kManifestName,
                          to_text(manifest_of(plan, step_, files_, snapshot.state)));
  }

  static bool has_shards(const SavePlan& plan) {
    return !plan.model.empty() &&
           plan.model_files[static_cast<std::size_t>(plan.model[0].writer)] != "model.safetensors";
  }

  void update_latest(Problem& problem) {
    attempt(problem, [&] {
      reach("renamed");
      set_latest(checkpoints_, step_);
      reach("latest");
      retain(checkpoints_, step_, options_.retain_interval);
    });
    if (!problem.empty())
      problem.text = fmt::format("{} is complete, but `latest` may not point to it: {}",
                                 result_.folder.string(), problem.text);
  }

  /// Shares problems and files among all ranks. A problem removes the staging folder and ends the save.
  FileChecksums share_result(Problem problem, const FileChecksums& files, std::string_view what) {
    FileChecksums all = agree(world_, problem, files, what);
    if (problem.empty()) return all;
    result_.ok = false;
    result_.problem = problem.text;
    result_.code = problem.code;
    std::error_code ignored;
    if (is_leader()) fs::remove_all(staging_, ignored);
    return all;
  }

  fs::path checkpoints_;
  fs::path staging_;
  std::int64_t step_;
  comm::Group world_;
  const SaveOptions& options_;
  SaveResult result_;
  FileChecksums files_;
};

}  // namespace

SaveResult save(const fs::path& run_folder, std::int64_t step, const Snapshot& snapshot,
                const comm::Group& world, const SaveOptions& options) {
  COL_CHECK(step >= 0, "save: the step must be 0 or more; got {}", step);
  return SaveProcess(run_folder, step, world, options).run(snapshot);
}

}  // namespace colonnade::checkpoint
