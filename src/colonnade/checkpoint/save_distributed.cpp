// See save_distributed.h.
#include "colonnade/checkpoint/save_distributed.h"

#include <fmt/format.h>

#include <chrono>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/distributed_writer.h"
#include "colonnade/checkpoint/publish.h"
#include "colonnade/checkpoint/save_files.h"
#include "colonnade/checkpoint/save_plan.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;

/// One save on one rank.
class DistributedSave {
 public:
  DistributedSave(const fs::path& run_folder, std::int64_t iteration, const comm::Group& world,
                  const SaveOptions& options)
      : root_(run_folder), iteration_(iteration), world_(world), options_(options) {
    result_.folder = root_ / iteration_folder_name(iteration);
    staging_ = with_suffix(result_.folder, kStagingSuffix);
  }

  SaveResult run(const DistributedSnapshot& snapshot) {
    const auto begin = std::chrono::steady_clock::now();
    require_one_owner(snapshot);
    stage();
    if (result_.ok) write(snapshot);
    if (result_.ok) commit(snapshot);
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result_;
  }

 private:
  void reach(std::string_view point) const {
    if (options_.on_point) options_.on_point(point);
  }
  [[nodiscard]] bool is_leader() const { return world_.rank() == 0; }

  /// Throws on all ranks where an element has no owner or two.
  void require_one_owner(const DistributedSnapshot& snapshot) const {
    Snapshot owned;
    owned.optimizer = snapshot.slices;
    (void)plan_save(world_.all_gather_text(describe(owned), "checkpoint: slices"));
  }

  void stage() {
    Problem problem;
    attempt(problem, [&] {
      reach("begin");
      if (is_leader()) make_staging(staging_);
    });
    share(problem, "checkpoint: staging folder");
  }

  void write(const DistributedSnapshot& snapshot) {
    Problem problem;
    std::vector<Segment> mine;
    attempt(problem, [&] {
      reach("staged");
      SegmentWriter writer(staging_ / fmt::format("__{}_0.distcp", world_.rank()));
      for (const Slice& slice : snapshot.slices)
        if (slice.owner && slice.data.numel() > 0) writer.add(slice);
      mine = writer.finish();
      sync_path(staging_);
      reach("written");
    });
    for (const Segment& segment : mine) result_.bytes += static_cast<std::uint64_t>(segment.length);
    share(problem, "checkpoint: files");
    if (!result_.ok) return;
    std::uint64_t bytes = 0;
    for (const std::string& text : world_.all_gather_text(to_text(mine), "checkpoint: segments"))
      for (Segment& segment : segments_of(text)) {
        bytes += static_cast<std::uint64_t>(segment.length);
        if (is_leader()) segments_.push_back(std::move(segment));
      }
    result_.bytes = bytes;
  }

  void commit(const DistributedSnapshot& snapshot) {
    Problem problem;
    if (is_leader()) {
      attempt(problem, [&] { complete(snapshot); });
      attempt(problem, [&] {
        reach("rename");
        publish(staging_, result_.folder);
      });
      if (problem.empty()) update_tracker(problem);
    }
    share(problem, "checkpoint: published");
  }

  void complete(const DistributedSnapshot& snapshot) {
    reach("manifest");
    for (const Segment& segment : segments_) {
      std::error_code missing;
      if (!fs::exists(staging_ / segment.file, missing))
        throw Error(
            fmt::format("{} must be visible to rank 0; got no file; save into a folder shared by all ranks",
                        (staging_ / segment.file).string()));
    }
    SegmentWriter objects(staging_ / "__objects_0.distcp");
    for (const std::string& key : snapshot.object_keys) objects.add_object(key, snapshot.object);
    for (Segment& segment : objects.finish()) segments_.push_back(std::move(segment));
    snapshot.write_common(staging_);
    write_file_atomically(staging_ / ".metadata", distributed_metadata(segments_));
    write_file_atomically(staging_ / "metadata.json", snapshot.metadata);
  }

  void update_tracker(Problem& problem) {
    attempt(problem, [&] {
      reach("renamed");
      write_file_atomically(root_ / "latest_checkpointed_iteration.txt", std::to_string(iteration_));
      reach("latest");
      retain();
    });
    if (!problem.empty())
      problem.text = fmt::format("{} is complete, but latest_checkpointed_iteration.txt may not name it: {}",
                                 result_.folder.string(), problem.text);
  }

  /// Removes older checkpoints whose iteration is not a multiple of retain_interval.
  void retain() const {
    if (options_.retain_interval <= 0) return;
    for (const auto& entry : sorted_entries(root_)) {
      const auto iteration = iteration_of_name(entry.path().filename().string());
      if (!iteration || *iteration >= iteration_ || *iteration % options_.retain_interval == 0) continue;
      try {
        remove_step(entry.path());
      } catch (const std::exception& error) {
        log::warning("{}: an old checkpoint cannot be removed; {}", entry.path().string(), error.what());
      }
    }
  }

  /// Shares a problem among all ranks. It removes the staging folder and ends the save.
  void share(Problem problem, std::string_view what) {
    (void)agree(world_, problem, {}, what);
    if (problem.empty()) return;
    result_.ok = false;
    result_.problem = problem.text;
    result_.code = problem.code;
    std::error_code ignored;
    if (is_leader()) fs::remove_all(staging_, ignored);
  }

  fs::path root_, staging_;
  std::int64_t iteration_;
  comm::Group world_;
  const SaveOptions& options_;
  SaveResult result_;
  std::vector<Segment> segments_;
};

}  // namespace

SaveResult save_distributed(const fs::path& run_folder, std::int64_t iteration,
                            const DistributedSnapshot& snapshot, const comm::Group& world,
                            const SaveOptions& options) {
  return DistributedSave(run_folder, iteration, world, options).run(snapshot);
}

}  // namespace colonnade::checkpoint
