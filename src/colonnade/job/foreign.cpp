// See foreign.h: names of files decide, nothing is opened.
#include "colonnade/job/foreign.h"

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

/// Whether `name` has the form of `pattern`, in which # stands for a digit.
bool has_form(std::string_view name, std::string_view pattern) {
  const auto fits = [](char c, char wanted) { return wanted == '#' ? c >= '0' && c <= '9' : c == wanted; };
  return std::ranges::equal(name, pattern, fits);
}

bool is_megatrons_step(std::string_view name) { return has_form(name, "iter_#######"); }

/// Megatron's run folder has latest_checkpointed_iteration.txt and iter_0000010/. The latter has
/// mp_rank_00/model_optim_rng.pt or, with pipeline or expert ranks, mp_rank_00_000 and mp_rank_00_000_000.
bool names_megatron(std::string_view name) {
  constexpr std::array<std::string_view, 3> kRanks{"mp_rank_##", "mp_rank_##_###", "mp_rank_##_###_###"};
  return name == "latest_checkpointed_iteration.txt" || name == "model_optim_rng.pt" ||
         is_megatrons_step(name) ||
         std::ranges::any_of(kRanks, [&](std::string_view form) { return has_form(name, form); });
}

/// What torch.distributed.checkpoint writes. Megatron has it in its step folders, others anywhere.
bool names_distributed(std::string_view name) { return name == ".metadata" || name.ends_with(".distcp"); }

/// A name in `folder`, or in its checkpoints/, that only Megatron writes there; "" when there is none.
std::string trace_of_megatron(const fs::path& folder) {
  const bool in_step = is_megatrons_step(checkpoint::as_folder(folder).filename().string());
  for (const fs::path& part : {fs::path(), fs::path("checkpoints")}) {
    const auto names = names_in(folder / part);
    const auto found = std::ranges::find_if(names, [&](std::string_view name) {
      return names_megatron(name) || (in_step && names_distributed(name));
    });
    if (found != names.end()) return (part / *found).string();
  }
  return "";
}

/// The files of a run folder and of its checkpoints/, also half-written or put aside.
bool is_of_run(const std::string& name) {
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

/// rank_N.log and launcher_N.txt, in the folder itself or in one that holds nothing else.
bool is_of_launcher(const fs::path& path) {
  const auto log = [](const std::string& name) {
    return (name.starts_with("rank_") && name.ends_with(".log")) || name.starts_with("launcher_");
  };
  if (!is_folder(path)) return log(path.filename());
  const auto names = names_in(path);
  return !names.empty() && std::ranges::all_of(names, log);
}

/// What a job script writes beside a run: its output, and copies of itself and its settings.
bool is_of_script(const fs::path& path) {
  constexpr std::array<std::string_view, 7> kEndings{".log", ".out", ".err", ".txt", ".yaml", ".yml", ".sh"};
  return !is_folder(path) && std::ranges::find(kEndings, path.extension()) != kEndings.end();
}

/// Whether `path` is a folder that the settings put where they like, or leads to one.
bool is_of_settings(const fs::path& path, const config::Run& run) {
  const auto plain = [](const fs::path& p) {
    return checkpoint::as_folder(fs::absolute(p).lexically_normal());
  };
  const fs::path outer = plain(path);
  return std::ranges::any_of(
      std::array{run.data.data_cache_path, run.logging.tensorboard_dir}, [&](const std::string& named) {
        if (named.empty()) return false;
        const fs::path inner = plain(named);
        return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
      });
}

/// The names in `folder` that no run leaves there before its first checkpoint.
std::vector<std::string> strangers(const fs::path& folder, const config::Run& run) {
  std::vector<std::string> names = names_in(folder);
  const bool run_has_begun = std::ranges::find(names, "metrics.jsonl") != names.end();
  std::erase_if(names, [&](const std::string& name) {
    if (name == "checkpoints") return strangers(folder / name, run).empty();
    const fs::path path = folder / name;
    return run_has_begun || is_of_run(name) || is_of_launcher(path) || is_of_script(path) ||
           is_of_settings(path, run);
  });
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown));
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "), names.size() > kShown ? ", ..." : "");
}

std::string closed_text(const std::string& load, const std::error_code& fault) {
  if (!fault) return "";
  return fmt::format("--load: the folder must be readable; got {} ({}); correct the path or its permissions",
                     load, fault.message());
}

}  // namespace

std::string closed_load_fault(const config::Run& run) {
  const std::string& load = run.checkpoint.load;
  return load.empty() ? "" : closed_text(load, checkpoint::closed(checkpoint::as_folder(load)));
}

std::string load_fault(const config::Run& run) {
  const std::string& load = run.checkpoint.load;
  const fs::path path = checkpoint::as_folder(load);
  if (std::string closed = closed_load_fault(run); !closed.empty()) return closed;
  if (!fs::exists(path)) {
    if (!checkpoint::step_of_name(path.filename().string())) return "";
    return fmt::format(
        "--load: a step folder must be there; got {}, which is not; name another, or the run folder", load);
  }
  if (!fs::is_directory(path))
    return fmt::format("--load must name a folder; got the file {}; name the run folder, e.g. --load {}",
                       load, path.has_parent_path() ? path.parent_path().string() : ".");
  std::error_code unreadable;
  if (fs::directory_iterator(path, unreadable); unreadable) return closed_text(load, unreadable);
  if (checkpoint::is_hugging_face_folder(path))
    return fmt::format(
        "--load must name a run folder; got {} with weights of Hugging Face, which are no run; "
        "use --pretrained-checkpoint {}",
        load, load);
  if (const std::string trace = trace_of_megatron(path); !trace.empty())
    return fmt::format(
        "--load must name a run folder of Colonnade; got {} with Megatron's {}, and Megatron's checkpoints "
        "are not read yet; convert it to a Hugging Face folder with Megatron's tools and use "
        "--pretrained-checkpoint",
        load, trace);
  const auto others = strangers(path, run);
  if (others.empty()) return "";
  if (const std::string fault = checkpoint::foreign_weights_fault(path); !fault.empty())
    return fmt::format("--load: {}", fault);
  return fmt::format(
      "--load must name a run folder, or a missing or empty one for a new run; got {} without a checkpoint "
      "but with {}; correct the path, or leave --load out",
      load, listed(others));
}

std::string save_fault(const config::Run& run) {
  const std::string& save = run.checkpoint.save;
  const std::string trace = save.empty() ? "" : trace_of_megatron(save);
  if (trace.empty()) return "";
  return fmt::format(
      "--save must not name a folder of Megatron's checkpoints; got {} with {}; choose another folder", save,
      trace);
}

}  // namespace colonnade::job
