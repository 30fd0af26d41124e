// See start.h.
#include "colonnade/job/start.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/machine_memory.h"
#include "colonnade/base/progress.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/config/dump.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/memory_check.h"
#include "colonnade/job/prepare.h"
#include "colonnade/launch/process.h"
#include "colonnade/rules/no_effect.h"

namespace colonnade::job {
namespace {

void set_threads(const launch::RankEnvironment& place) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  at::set_num_threads(launch::intra_op_threads(place, launch::usable_cores()));
}

/// Makes this rank's GPU current, for its tensors and kernels. Returns its index.
int set_gpu(const launch::RankEnvironment& place, const std::string& backend) {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA))
    throw ConfigError(
        "--device cuda requires a build with CUDA; got a build for the CPU only; use --device cpu, or build with the "
        "preset cuda");
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const int gpus = cuda.deviceCount();  // NOLINT(bugprone-signed-char-misuse)
  const int mine = choose_gpu(place, gpus, backend);
  cuda.setDevice(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(mine)));
  require_deterministic_kernels();  // before any thread reads the environment
  return mine;
}

/// Whether all ranks need the same value; paths of a rank's own files may differ.
bool must_agree(const std::string& key) { return key != "tensorboard_dir" && key != "data_cache_path"; }

std::map<std::string, std::string> shared_settings(const config::Run& run) {
  std::map<std::string, std::string> shared;
  for (const auto& [key, value] : config::values(run))
    if (must_agree(key)) shared[key] = value;
  return shared;
}

/// Logs launcher, threads and notes, on rank 0 only.
void log_setup(const launch::RankEnvironment& place, const config::Run& run, rules::Purpose purpose) {
  if (place.rank != 0) return;
  if (place.launcher != "none")
    log::info("{}; {} threads per rank", launch::describe(place), at::get_num_threads());
  for (const std::string& note : run.notes) log::info("{}", note);
  if (purpose == rules::Purpose::kTrain)
    for (const std::string& note : rules::no_effect_notes(run)) log::info("{}", note);
}

}  // namespace

void require_deterministic_kernels() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

std::string default_device() {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) return "cpu";
  return c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() > 0 ? "cuda" : "cpu";
}

int choose_gpu(const launch::RankEnvironment& place, int gpus, const std::string& backend) {
  if (gpus < 1) throw ConfigError("--device cuda requires a GPU; got none that CUDA sees; use --device cpu");
  if (place.exclusive_gpu && gpus == 1) return 0;
  if (backend == "gloo") return place.local_rank % gpus;
  if (place.local_rank < gpus) return place.local_rank;
  throw ConfigError(fmt::format(
      "--device cuda: every rank needs its own GPU under {}; got local rank {} and {} GPUs on this machine; start "
      "fewer ranks per machine, or share GPUs with --distributed-backend gloo",
      backend, place.local_rank, gpus));
}

StartedRun start(config::Run run, rules::Purpose purpose, std::vector<std::string> faults) {
  if (run.logging.logging_level) log::set_level(log::level_from_python(*run.logging.logging_level));
  const launch::RankEnvironment place = launch::read_rank_environment(launch::environment_of_process());
  run.parallel.world_size = place.world_size;
  if (place.world_size > 1) log::set_rank(place.rank);
  progress().set_rank(place.rank, place.world_size);
  progress().set_phase("init");
  set_threads(place);
  std::vector<std::int64_t> steps_seen;
  if (const std::string& save = run.checkpoint.save; !save.empty())
    steps_seen = checkpoint::saved_steps(std::filesystem::path(save) / "checkpoints");
  prepare(run, purpose, std::move(faults));
  if (run.training.device == "cpu")
    require_memory(run, purpose, std::max(place.local_world_size, 1), machine_memory());
  log_setup(place, run, purpose);

  const bool cuda = run.training.device == "cuda";
  const std::string& backend = *run.training.distributed_backend;
  comm::ConnectOptions options;
  if (cuda) options.device_index = set_gpu(place, backend);
  options.timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(run.training.distributed_timeout_minutes * 60'000));
  options.cuda = cuda;
  options.gloo_for_cuda = cuda && backend == "gloo";
  comm::World world = comm::connect(place, options);
  comm::Communicators ranks(layout::Mesh(run.parallel), place.rank, world.factory());
  comm::check_same_settings(ranks.world(), shared_settings(run));
  fault::point("connected");
  return {std::move(run), std::move(world), std::move(ranks), std::move(steps_seen)};
}

}  // namespace colonnade::job
