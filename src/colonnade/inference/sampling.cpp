// See sampling.h.
#include "colonnade/inference/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/philox.h"

namespace colonnade::inference {
namespace {

void check(std::span<const float> logits) {
  bool any = false;
  for (const float logit : logits) {
    if (std::isnan(logit) || logit == INFINITY)
      throw Error(fmt::format(
          "logits must be finite; got {}; the weights are damaged or overflow in this dtype", logit));
    any = any || std::isfinite(logit);
  }
  if (!any) throw Error(fmt::format("logits: at least one must be finite; got none of {}", logits.size()));
}

/// The ids of the `count` largest logits, largest first.
std::vector<std::int64_t> largest(std::span<const float> logits, std::size_t count) {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](std::int64_t a, std::int64_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), before);
  ids.resize(count);
  return ids;
}

void apply_top_p(std::vector<Candidate>& all, double top_p) {
  double before = 0;
  const auto end = std::find_if(all.begin(), all.end(), [&](const Candidate& c) {
    const bool reached = before > top_p;
    before += c.probability;
    return reached;
  });
  all.erase(end, all.end());
}

void normalize(std::vector<Candidate>& all) {
  double sum = 0;
  for (const Candidate& c : all) sum += c.probability;
  for (Candidate& c : all) c.probability /= sum;
}

}  // namespace

std::vector<std::string> faults_of(const Sampling& s) {
  std::vector<std::string> faults;
  if (!(s.temperature >= 0 && std::isfinite(s.temperature)))
    faults.push_back(
        fmt::format("--temperature must be 0 (greedy) or more; got {}; write e.g. 0.8", s.temperature));
  if (s.top_k < 0)
    faults.push_back(fmt::format("--top-k must be 0 (all tokens) or more; got {}; write e.g. 40", s.top_k));
  if (!(s.top_p >= 0 && s.top_p <= 1))
    faults.push_back(fmt::format("--top-p must lie in 0 (all tokens) to 1; got {}; write e.g. 0.9", s.top_p));
  if (!(s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty)))
    faults.push_back(fmt::format(
        "--repetition-penalty must be above 0; got {}; write e.g. 1.1, or 1 for none", s.repetition_penalty));
  return faults;
}

void penalize(std::span<float> logits, std::span<const std::int32_t> seen, double penalty) {
  for (const std::int32_t token : std::set<std::int32_t>(seen.begin(), seen.end())) {
    if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) continue;
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = static_cast<float>(logit < 0 ? logit * penalty : logit / penalty);
  }
}

std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling) {
  check(logits);
  const auto asked = sampling.greedy() ? 1 : sampling.top_k;
  const std::size_t count =
      asked > 0 ? std::min(logits.size(), static_cast<std::size_t>(asked)) : logits.size();
  const double temperature = sampling.greedy() ? 1.0 : sampling.temperature;
  std::vector<Candidate> all;
  double top = 0;
  for (const std::int64_t id : largest(logits, count)) {
    const double logit = logits[static_cast<std::size_t>(id)];
    if (all.empty()) top = logit;
    all.push_back({id, std::exp((logit - top) / temperature)});
  }
  normalize(all);
  if (sampling.top_p > 0) {
    apply_top_p(all, sampling.top_p);
    normalize(all);
  }
  return all;
}

double draw(std::uint64_t seed, std::int64_t position) {
  const Philox philox{seed ^ stable_hash("generate")};
  const auto words = philox(static_cast<std::uint64_t>(position));
  const std::uint64_t bits = std::uint64_t{words[0]} << 21 | std::uint64_t{words[1] >> 11};
  return static_cast<double>(bits) * 0x1.0p-53;
}

std::int64_t sample(std::span<const float> logits, const Sampling& sampling, std::int64_t position) {
  const auto all = candidates(logits, sampling);
  const double at = draw(sampling.seed, position);
  double sum = 0;
  for (const Candidate& c : all) {
    sum += c.probability;
    if (sum > at) return c.token;
  }
  return all.back().token;  // the sum was rounded to below 1
}

}  // namespace colonnade::inference
