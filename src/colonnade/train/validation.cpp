// See validation.h.
#include "colonnade/train/validation.h"

#include <fmt/format.h>

#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/config/batch_schedule.h"

namespace colonnade::train {
namespace {

std::string set_name(const config::Data& data, std::size_t set) {
  if (!data.multiple_validation_sets) return "validation";
  const auto& names = data.validation_set_names;
  return names.empty() ? fmt::format("validation-{}", set) : "validation-" + names.at(set);
}

/// Whether the run ever runs a full validation.
bool runs_full_validation(const config::Training& t) {
  return t.full_validation && (t.eval_interval || t.skip_train);
}

}  // namespace

bool validation_due(const config::Training& t, std::int64_t iteration) {
  return t.eval_interval && t.reads_validation() && iteration > 0 && iteration % *t.eval_interval == 0 &&
         iteration >= t.start_eval_at_iter.value_or(0);
}

std::vector<EvalRange> validation_ranges(std::int64_t iteration, const config::Run& run,
                                         const std::vector<data::Range>& sets) {
  const config::Training& t = run.training;
  if (!t.full_validation) {
    const std::int64_t before =
        (data::evaluations(t, iteration) - 1) * t.eval_iters * config::eval_batch_size(t);
    return {{"validation", before, t.eval_iters * config::eval_batch_size(t)}};
  }
  std::vector<EvalRange> ranges;
  for (std::size_t i = 0; i < sets.size(); ++i)
    ranges.push_back({set_name(run.data, i), sets[i].begin, sets[i].size()});
  return ranges;
}

std::vector<std::string> validation_faults(const config::Run& run, const std::vector<data::Range>& sets) {
  std::vector<std::string> faults;
  if (!runs_full_validation(run.training)) return faults;
  const auto add = [&](const std::string& set) {
    faults.push_back(
        fmt::format("--full-validation: the {} data must hold a sample; got none; add data", set));
  };
  if (sets.empty()) add("validation");
  for (std::size_t i = 0; i < sets.size(); ++i)
    if (sets[i].size() == 0) add(set_name(run.data, i));
  return faults;
}

std::vector<std::string> validation_notes(const config::Run& run, const std::vector<data::Range>& sets) {
  const std::int64_t batch = config::eval_batch_size(run.training);
  std::vector<std::string> sentences;
  if (!runs_full_validation(run.training)) return sentences;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::int64_t size = sets[i].size();
    const std::string last =
        size % batch == 0 ? "" : fmt::format(", the last {} in a padded batch", size % batch);
    sentences.push_back(fmt::format("{}: reads {} samples each time{}", set_name(run.data, i), size, last));
  }
  return sentences;
}

void require_finite(const std::map<std::string, double>& losses) {
  for (const auto& [set, loss] : losses)
    if (!std::isfinite(loss)) {
      progress().set_agreed_exit_code(kExitFailed);
      throw Error(fmt::format(
          "{}: the loss must be finite; got {}; the weights are not finite, or too large for this precision: load an "
          "earlier checkpoint (--ckpt-step), or allow it with --no-check-for-nan-in-loss-and-grad",
          set, loss));
    }
}

}  // namespace colonnade::train
