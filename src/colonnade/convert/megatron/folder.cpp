// See folder.h.
#include "colonnade/convert/megatron/folder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <regex>
#include <string>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/printable.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/checkpoint/parts.h"
#include "colonnade/checkpoint/torch_file.h"

namespace colonnade::convert::megatron {
namespace {

namespace fs = std::filesystem;
constexpr const char* kTracker = "latest_checkpointed_iteration.txt";

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

std::int64_t number_in(const std::string& text, const std::regex& pattern) {
  std::smatch match;
  return std::regex_search(text, match, pattern) ? std::stol(match[1]) : 0;
}

/// Samples in Megatron Bridge's train_state.pt, a dict of scalar tensors; nothing where it lacks them.
std::optional<std::int64_t> samples_of(const fs::path& file) {
  const checkpoint::TorchFile state = checkpoint::TorchFile::open(file);
  const pickle::Value* samples = pickle::find(&state.root(), "consumed_train_samples");
  if (samples == nullptr) return std::nullopt;
  if (samples->is(pickle::Kind::kInt)) return samples->integer;
  if (!checkpoint::TorchFile::is_tensor(*samples)) return std::nullopt;
  const at::Tensor stored = state.tensor(*samples);
  if (stored.numel() != 1) return std::nullopt;
  const at::Tensor value = at::zeros(stored.sizes(), stored.options());
  checkpoint::copy_values(value, stored);
  return value.item<std::int64_t>();
}

/// The checkpoint in a folder of tensors; nothing where it holds none.
std::optional<FoundFolder> tensors_in(const fs::path& folder) {
  static const std::regex kIteration(R"(iter_(\d{1,12})$)"), kStep(R"(step=(\d{1,12}))");
  const std::vector<std::string> names = checkpoint::names_in(folder);
  const bool is_legacy =
      std::ranges::any_of(names, [](const std::string& name) { return name.starts_with("mp_rank_"); });
  const bool is_dist = is_there(folder / ".metadata") && is_there(folder / "metadata.json");
  if (!is_legacy && !is_dist) return std::nullopt;
  FoundFolder found{
      .format = is_dist ? Format::kTorchDist : Format::kLegacy, .folder = folder, .description = {}};
  found.iteration = number_in(folder.filename().string(), kIteration);
  if (folder.filename() == "weights")
    found.iteration = number_in(folder.parent_path().filename().string(), kStep);
  static const std::regex kConsumed(R"(consumed_samples=(\d{1,15}))");
  if (folder.filename() == "weights")
    if (const std::int64_t samples = number_in(folder.parent_path().filename().string(), kConsumed);
        samples > 0)
      found.consumed_samples = samples;
  if (is_there(folder / "train_state.pt")) found.consumed_samples = samples_of(folder / "train_state.pt");
  for (const fs::path& description :
       {folder / "run_config.yaml", folder.parent_path() / "context" / "model.yaml"})
    if (found.description.empty() && is_there(description)) found.description = description;
  return found;
}

/// The folder that the tracker of a run names.
fs::path tracked(const fs::path& root) {
  std::string text = read_file(root / kTracker);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r')) text.pop_back();
  if (text == "release") return root / text;
  std::int64_t iteration = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), iteration);
  if (fault != std::errc() || end != text.data() + text.size() || iteration < 0)
    throw DataError(
        fmt::format("{} must hold an iteration or 'release'; got '{}'; correct it, or name the iter_ folder",
                    (root / kTracker).string(), printable(text.substr(0, 40))));
  return root / fmt::format("iter_{:07}", iteration);
}

/// NeMo 2's checkpoints in a folder; those with a marker beside them were not saved to the end.
std::optional<FoundFolder> last_nemo(const fs::path& root) {
  std::optional<FoundFolder> last;
  for (const std::string& name : checkpoint::names_in(root)) {
    if (!is_there(root / name / "context") || is_there(root / (name + "-unfinished"))) continue;
    const auto found = tensors_in(root / name / "weights");
    if (found && (!last || found->iteration >= last->iteration)) last = found;
  }
  return last;
}

}  // namespace

std::optional<FoundFolder> find_folder(const fs::path& typed, std::optional<std::int64_t> step) {
  const fs::path path = checkpoint::strip_trailing_slash(typed);
  if (is_there(path / kTracker)) {
    const fs::path folder = step ? path / fmt::format("iter_{:07}", *step) : tracked(path);
    auto found = tensors_in(folder);
    if (!found)
      throw DataError(fmt::format(
          "{} must hold the checkpoint that {} names; got {}; correct {}, or copy the folder again",
          path.string(), step ? "--ckpt-step" : kTracker,
          is_there(folder) ? "a folder without tensors" : "no folder " + folder.filename().string(),
          step ? "--ckpt-step" : "it"));
    return found;
  }
  if (auto found = tensors_in(path)) return found;
  if (auto found = is_there(path / "context") ? tensors_in(path / "weights") : std::nullopt) return found;
  return last_nemo(path);
}

}  // namespace colonnade::convert::megatron
