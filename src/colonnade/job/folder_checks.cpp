// See folder_checks.h. Only file names are looked at; no file is opened.
#include "colonnade/job/folder_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/hugging_face.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using checkpoint::names_in;

/// Whether `name` matches `pattern`, in which # stands for a digit.
bool has_form(std::string_view name, std::string_view pattern) {
  const auto fits = [](char c, char wanted) { return wanted == '#' ? c >= '0' && c <= '9' : c == wanted; };
  return std::ranges::equal(name, pattern, fits);
}

bool is_megatron_step(std::string_view name) { return has_form(name, "iter_#######"); }

/// Megatron's run folder has latest_checkpointed_iteration.txt and iter_0000010/. The latter has
/// mp_rank_00/model_optim_rng.pt or, in other layouts, mp_rank_00_000 and mp_rank_00_000_000.
bool is_megatron_name(std::string_view name) {
  constexpr std::array<std::string_view, 3> kRanks{"mp_rank_##", "mp_rank_##_###", "mp_rank_##_###_###"};
  return name == "latest_checkpointed_iteration.txt" || name == "model_optim_rng.pt" ||
         is_megatron_step(name) ||
         std::ranges::any_of(kRanks, [&](std::string_view form) { return has_form(name, form); });
}

/// Files of torch.distributed.checkpoint. Megatron has them in its step folders, other programs anywhere.
bool is_torch_distributed_name(std::string_view name) {
  return name == ".metadata" || name.ends_with(".distcp");
}

/// A file in `folder`, or in its checkpoints/, that only Megatron writes there; "" when there is none.
std::string megatron_file(const fs::path& folder) {
  const bool in_step = is_megatron_step(checkpoint::strip_trailing_slash(folder).filename().string());
  for (const fs::path& part : {fs::path(), fs::path("checkpoints")}) {
    const auto names = names_in(folder / part);
    const auto found = std::ranges::find_if(names, [&](std::string_view name) {
      return is_megatron_name(name) || (in_step && is_torch_distributed_name(name));
    });
    if (found != names.end()) return (part / *found).string();
  }
  return "";
}

/// Whether it is a file of a run folder or of its checkpoints/, or a partial or renamed copy of one.
bool is_run_file(const std::string& name) {
  constexpr std::array<std::string_view, 6> kFiles{"config.yaml",   "metrics.jsonl", "validation.jsonl",
                                                   "sessions.json", "report.html",   "owner.txt"};
  const auto begins = [&](std::string_view file) { return name.starts_with(file); };
  return name == "logs" || name == "tensorboard" || name == "latest" || name.starts_with("latest.part") ||
         name.starts_with(".") || checkpoint::step_of_name(name.substr(0, name.find('.'))) ||
         std::ranges::any_of(kFiles, begins);
}

bool is_folder(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_directory(path, unreadable);
}

/// Whether it is rank_N.log or launcher_N.txt, or a folder that holds nothing else.
bool is_launcher_file(const fs::path& path) {
  const auto log = [](const std::string& name) {
    return (name.starts_with("rank_") && name.ends_with(".log")) || name.starts_with("launcher_");
  };
  if (!is_folder(path)) return log(path.filename());
  const auto names = names_in(path);
  return !names.empty() && std::ranges::all_of(names, log);
}

/// Whether it may be a file of the job script: its output, or copies of itself and its settings.
bool is_script_file(const fs::path& path) {
  constexpr std::array<std::string_view, 7> kEndings{".log", ".out", ".err", ".txt", ".yaml", ".yml", ".sh"};
  return !is_folder(path) && std::ranges::find(kEndings, path.extension()) != kEndings.end();
}

/// Whether `path` is the data cache or TensorBoard folder of the settings, or one of their parents.
bool is_settings_folder(const fs::path& path, const config::Run& run) {
  const auto plain = [](const fs::path& p) {
    return checkpoint::strip_trailing_slash(fs::absolute(p).lexically_normal());
  };
  const fs::path outer = plain(path);
  return std::ranges::any_of(
      std::array{run.data.data_cache_path, run.logging.tensorboard_dir}, [&](const std::string& named) {
        if (named.empty()) return false;
        const fs::path inner = plain(named);
        return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
      });
}

/// The names in `folder` that no run writes there before its first checkpoint.
std::vector<std::string> unrelated_names(const fs::path& folder, const config::Run& run) {
  std::vector<std::string> names = names_in(folder);
  const bool run_has_begun = std::ranges::find(names, "metrics.jsonl") != names.end();
  std::erase_if(names, [&](const std::string& name) {
    if (name == "checkpoints") return unrelated_names(folder / name, run).empty();
    const fs::path path = folder / name;
    return run_has_begun || is_run_file(name) || is_launcher_file(path) || is_script_file(path) ||
           is_settings_folder(path, run);
  });
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown));
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "), names.size() > kShown ? ", ..." : "");
}

std::string unreadable_text(const std::string& load, const std::error_code& fault) {
  if (!fault) return "";
  return fmt::format("--load: the folder must be readable; got {} ({}); correct the path or its permissions",
                     load, fault.message());
}

}  // namespace

std::string unreadable_load_fault(const config::Run& run) {
  const std::string& load = run.checkpoint.load;
  return load.empty()
             ? ""
             : unreadable_text(load, checkpoint::access_error(checkpoint::strip_trailing_slash(load)));
}

std::string load_fault(const config::Run& run) {
  const std::string& load = run.checkpoint.load;
  const fs::path path = checkpoint::strip_trailing_slash(load);
  if (std::string fault = unreadable_load_fault(run); !fault.empty()) return fault;
  if (!fs::exists(path)) {
    if (!checkpoint::step_of_name(path.filename().string())) return "";
    return fmt::format(
        "--load must name an existing step folder; got {}, which does not exist; name another, or the run folder",
        load);
  }
  if (!fs::is_directory(path))
    return fmt::format("--load must name a folder; got the file {}; name the run folder, e.g. --load {}",
                       load, path.has_parent_path() ? path.parent_path().string() : ".");
  std::error_code unreadable;
  if (fs::directory_iterator(path, unreadable); unreadable) return unreadable_text(load, unreadable);
  if (checkpoint::is_hugging_face_folder(path))
    return fmt::format(
        "--load must name a run folder; got {} with weights of Hugging Face, which are not a run; use "
        "--pretrained-checkpoint {}",
        load, load);
  if (const std::string file = megatron_file(path); !file.empty())
    return fmt::format(
        "--load must name a checkpoint of Megatron with its tensors (torch_dist or torch); got {} with {} alone; copy "
        "the folder again, or name its iter_ folder",
        load, file);
  const auto others = unrelated_names(path, run);
  if (others.empty()) return "";
  if (const std::string fault = checkpoint::unsupported_weights_fault(path); !fault.empty())
    return fmt::format("--load: {}", fault);
  return fmt::format(
      "--load must name a run folder, or a missing or empty one for a new run; got {} without a checkpoint but with "
      "{}; correct the path, or remove --load",
      load, listed(others));
}

std::string save_fault(const config::Run& run) {
  const std::string& save = run.checkpoint.save;
  const std::string file = save.empty() ? "" : megatron_file(save);
  if (file.empty()) return "";
  return fmt::format(
      "--save must not name a folder of Megatron's checkpoints that --load does not continue; got {} with {}; choose "
      "another folder, or add --load {}",
      save, file, save);
}

}  // namespace colonnade::job
