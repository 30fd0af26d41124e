// See step_checks.h.
#include "colonnade/train/step_checks.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::train {
namespace {

constexpr const char* kHashes = "weight hashes of the replicas";

std::string hash_of(const at::Tensor& values) {
  const at::Tensor host = values.detach().cpu().contiguous();
  return checkpoint::checksum_of({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
}

/// Parameters of one group with their hashes.
struct Hashes {
  std::vector<std::string> names, values;
};

Hashes hashes_of(job::Job& job, layout::ParamGroup group) {
  Hashes hashes;
  for (const tensor::Parameter* p : job.parameters()) {
    if (p->spec.param_group != group) continue;
    hashes.names.push_back(p->spec.name);
    hashes.values.push_back(hash_of(p->value));
  }
  return hashes;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// Members whose text is not that of the majority; all members where two texts are equally frequent.
std::vector<std::size_t> minority(const std::vector<std::string>& texts) {
  std::map<std::string, std::size_t> counts;
  for (const std::string& text : texts) ++counts[text];
  std::size_t most = 0;
  for (const auto& [text, count] : counts) most = std::max(most, count);
  const auto majorities = std::ranges::count_if(counts, [&](const auto& one) { return one.second == most; });
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (majorities > 1 || counts.at(texts[i]) < most) members.push_back(i);
  return members;
}

/// The difference within this rank's group, as a sentence; "" if all members are equal.
std::string difference(job::Job& job, layout::ParamGroup group) {
  const Hashes own = hashes_of(job, group);
  const comm::Group replicas = job.ranks.group(layout::data_axes(group));
  const std::string text = fmt::format("{}", fmt::join(own.values, " "));
  const std::vector<std::string> short_texts =
      replicas.all_gather_text(checkpoint::checksum_of(text), kHashes);
  const std::vector<std::size_t> members = minority(short_texts);
  if (members.empty()) return "";
  std::vector<std::vector<std::string>> all;
  for (const std::string& one : replicas.all_gather_text(text, kHashes)) all.push_back(words_of(one));
  const std::vector<std::string> ids = replicas.all_gather_text(std::to_string(job.ranks.rank()), kHashes);
  std::vector<std::string> differing, ranks;
  for (std::size_t i = 0; i < own.names.size(); ++i)
    if (std::ranges::any_of(all, [&](const auto& hashes) { return hashes.at(i) != all.front().at(i); }))
      differing.push_back(own.names[i]);
  for (const std::size_t member : members) ranks.push_back(ids[member]);
  const std::string more =
      differing.size() > 1 ? fmt::format(" and {} more parameters", differing.size() - 1) : "";
  return fmt::format("other values of {}{} on rank{} {} than on the other replicas",
                     differing.empty() ? "no parameter" : differing.front(), more,
                     ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

}  // namespace

bool OutlierCheck::is_outlier(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(size)) return false;
  if (samples_ == kSamples) return size >= kFactor * maximum_;
  ++samples_;
  maximum_ = std::max(maximum_, size);
  return false;
}

std::vector<std::string> StepChecks::outliers(const job::StepReport& report, std::int64_t iteration,
                                              int rank) {
  std::vector<std::string> found;
  const auto check = [&](OutlierCheck& check, const char* flag, const std::string& what, double value) {
    if (check.is_outlier(value))
      found.push_back(
          fmt::format("{}: step {}, rank {}: {} is {:.4g}, at least {} times the largest of the first "
                      "{} values, {:.4g}",
                      flag, iteration, rank, what, value, OutlierCheck::kFactor, OutlierCheck::kSamples,
                      check.maximum()));
  };
  for (std::size_t i = 0; i < report.microbatch_losses.size(); ++i)
    check(losses_, "--check-for-spiky-loss", fmt::format("the loss of micro-batch {}", i),
          report.microbatch_losses[i]);
  for (const auto& [bucket, norm] : report.bucket_norms)
    check(grads_, "--check-for-large-grads", fmt::format("the local gradient norm of {}", bucket), norm);
  return found;
}

bool weight_hash_due(const config::Training& t, std::int64_t iteration) {
  const auto& interval = t.check_weight_hash_across_dp_replicas_interval;
  return interval && iteration % *interval == 0;
}

void require_equal_replicas(job::Job& job) {
  job.buffers().wait_for(job.parameters());
  std::string mine;
  for (const layout::ParamGroup group :
       layout::param_groups(job.run.model))  // collective, also after a finding
    if (std::string found = difference(job, group); mine.empty()) mine = std::move(found);
  std::vector<std::string> faults = job.ranks.world().all_gather_text(mine, kHashes);
  std::erase(faults, "");
  std::ranges::sort(faults);
  faults.erase(std::unique(faults.begin(), faults.end()), faults.end());
  if (faults.empty()) return;
  throw CommError(fmt::format(
      "--check-weight-hash-across-dp-replicas-interval: data-parallel replicas must have equal weights; got {} after "
      "iteration {}; resume from the last checkpoint, without the device of that rank",
      fmt::join(faults, ", and "), job.counters.iteration));
}

}  // namespace colonnade::train
