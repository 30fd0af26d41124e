// Enumerates layouts and applies rules, estimate and memory plan.
#include "colonnade/cost/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/schema.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/search_space.h"
#include "colonnade/cost/verdict.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/stages.h"
#include "colonnade/rules/rules.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::cost {
namespace {

/// Results shared by consecutive candidates that differ only in data-parallel sharding.
struct CandidateCache {
  const LayoutChoice* choices = nullptr;
  std::int64_t micro_batch = 0;
  bool sequence_parallel = false;
  std::optional<InFlightBytes> in_flight;
  struct Peaks {
    std::vector<std::vector<std::vector<UnitBytes>>> units;  ///< StageMemory::units by rank
    bool without_units = true;                               ///< no units: a lower bound for all shardings
    std::vector<ActivationPeak> peaks;
  };
  struct RecomputeCache {  ///< results of one recomputation option
    config::Recompute recompute;
    std::vector<Peaks> peaks;
    std::optional<ForwardBackwardTime> passes;
  };
  std::vector<RecomputeCache> options;

  RecomputeCache& option(const config::Recompute& recompute) {
    const auto found = std::ranges::find(options, recompute, &RecomputeCache::recompute);
    return found != options.end()
               ? *found
               : options.emplace_back(RecomputeCache{.recompute = recompute, .peaks = {}, .passes = {}});
  }
};

/// Layouts that fit, fastest first. Pointers, because insertion moves those behind, and a run has hundreds of
/// settings.
using FoundLayouts = std::vector<std::shared_ptr<const FoundLayout>>;

/// Evaluates the candidates of one thread.
class Evaluator {
 public:
  Evaluator(const config::Run& base, const Hardware& hardware, std::size_t keep)
      : base_(base), hardware_(hardware), keep_(keep) {
    if (!base.recompute.granularity) recompute_options_ = recompute_options(base.model);
  }

  /// Prunes slower layouts from now on.
  void set_bound(double step) { bound_ = step; }

  void evaluate(const LayoutChoice& c) {
    const std::vector<Candidate> candidates = candidates_of(base_, c, hardware_.devices_per_node);
    result.candidates += static_cast<std::int64_t>(candidates.size());
    if (can_split(c)) {
      for (const Candidate& candidate : candidates) evaluate(c, candidate);
    } else if (!candidates.empty()) {
      result.rejected["pipeline-split"] += static_cast<std::int64_t>(candidates.size());
    }
  }

  static bool faster(const std::shared_ptr<const FoundLayout>& a,
                     const std::shared_ptr<const FoundLayout>& b) {
    if (a->time.step != b->time.step) return a->time.step < b->time.step;
    const auto key = [](const FoundLayout& f) {
      const config::Parallel& p = f.run.parallel;
      return std::tuple(f.peak_bytes, p.tensor_model_parallel_size, p.pipeline_model_parallel_size,
                        p.context_parallel_size, p.cp_comm_type, p.expert_model_parallel_size,
                        p.expert_tensor_size(), f.run.model.moe.token_dispatcher_type, p.pipeline_schedule,
                        p.num_virtual_stages_per_pipeline_rank, f.run.training.micro_batch_size,
                        p.account_for_embedding_in_pipeline_split, p.account_for_loss_in_pipeline_split,
                        p.pipeline_model_parallel_layout, p.sequence_parallel, p.use_megatron_fsdp,
                        p.data_parallel_sharding_strategy, p.use_distributed_optimizer,
                        p.torch_fsdp2_reshard_after_forward, p.overlap_param_gather,
                        p.num_distributed_optimizer_instances, p.outer_dp_sharding_strategy);
    };
    return key(*a) < key(*b);
  }

  SearchResult result;  ///< without the layouts
  FoundLayouts best;

 private:
  void evaluate(const LayoutChoice& c, const Candidate& candidate) {
    if (&c != cache_.choices || candidate.micro_batch != cache_.micro_batch ||
        candidate.sequence_parallel != cache_.sequence_parallel)
      cache_ = {.choices = &c,
                .micro_batch = candidate.micro_batch,
                .sequence_parallel = candidate.sequence_parallel,
                .in_flight = {},
                .options = {}};
    if (passes_are_slow(cache_.option(base_.recompute).passes)) {  // for any sharding
      ++result.pruned;
      return;
    }
    config::Run given = run_of(base_, c, candidate);
    config::Run run = given;
    config::derive(run);
    if (const auto id = rules::first_broken(run, rules::Purpose::kPlan)) {
      ++result.rejected[*id];
      return;
    }
    if (is_slow(c, candidate, run)) {
      ++result.pruned;
      return;
    }
    double peak = peak_bytes(c, candidate, run);
    if (peak > hardware_.usable_bytes() && !recompute_options_.empty()) {
      peak = std::min(peak, choose_recompute(c, candidate, run));
      given.recompute = run.recompute;
    }
    if (peak > hardware_.usable_bytes()) {
      ++result.too_big;
      if (result.smallest_bytes == 0 || peak < result.smallest_bytes) result.smallest_bytes = peak;
      return;
    }
    ++result.fit;
    insert_best({std::move(given), time_of(c, run), peak});
  }

  /// Whether the passes alone take longer than the full steps of the layouts to beat.
  [[nodiscard]] bool passes_are_slow(const std::optional<ForwardBackwardTime>& passes) const {
    return passes && std::max(passes->busiest.total(), passes->pipeline.makespan) > bound_;
  }

  /// Whether the run is slower than the layouts to beat even without recomputation. False for layouts that
  /// cannot fit with any recomputation.
  bool is_slow(const LayoutChoice& c, const Candidate& candidate, const config::Run& run) {
    return std::isfinite(bound_) && max_peak(run, resident(c, candidate, run)) <= hardware_.usable_bytes() &&
           time_of(c, run).step > bound_;
  }

  StepTime time_of(const LayoutChoice& c, const config::Run& run) {
    auto& passes = cache_.option(run.recompute).passes;
    if (!passes) passes = forward_backward_time(ModelCost(assumed(run)), hardware_, {}, schedules_);
    return estimate_step(assumed(run), hardware_, sizes(c, run), *passes);
  }

  /// The run that a plan assumes: equal context-parallel groups.
  const config::Run& assumed(const config::Run& run) {
    return run.parallel.hybrid_context_parallel ? assumed_ = layout::with_fixed_context_size(run) : run;
  }

  /// Sets the cheapest recomputation with which the layout fits, and returns its peak. The last option saves
  /// least: if it does not fit, none does.
  double choose_recompute(const LayoutChoice& c, const Candidate& candidate, config::Run& run) {
    const auto peak_with = [&](const config::Recompute& option) {
      run.recompute = option;
      return rules::first_broken(run, rules::Purpose::kPlan) ? std::numeric_limits<double>::infinity()
                                                             : peak_bytes(c, candidate, run);
    };
    const double lower_bound = peak_with(recompute_options_.back());
    if (std::isfinite(lower_bound) && lower_bound > hardware_.usable_bytes()) return lower_bound;
    for (std::size_t i = 0; i + 1 < recompute_options_.size(); ++i)
      if (const double peak = peak_with(recompute_options_[i]); peak <= hardware_.usable_bytes()) return peak;
    run.recompute = recompute_options_.back();
    return lower_bound;
  }

  /// Whether the layers can be split into stages: the most common error, and the same for all tensor sizes
  /// and batches.
  bool can_split(const LayoutChoice& c) {
    if (const auto found = splits_.find(c.split()); found != splits_.end()) return found->second;
    bool can = true;
    try {
      config::Run run = run_of(base_, c, {});
      config::derive(run);
      layout::num_stages(run.model, run.parallel);
    } catch (const ConfigError&) {
      can = false;
    }
    return splits_.emplace(c.split(), can).first->second;
  }

  const LocalSizes& sizes(const LayoutChoice& c, const config::Run& run) {
    const std::tuple key(c.tensor, c.ep, c.etp);
    if (!sizes_.contains(key)) sizes_.emplace(key, local_sizes(ModelCost(run)));
    return sizes_.at(key);
  }

  /// Resident memory of all ranks.
  const std::vector<StageMemory>& resident(const LayoutChoice& c, const Candidate& candidate,
                                           const config::Run& run) {
    const std::tuple key(c.split(), c.tensor, c.ep, c.etp, candidate.data_sharding.key());
    const auto found = resident_.find(key);
    return found != resident_.end() ? found->second
                                    : resident_.emplace(key, plan_resident(ModelBlocks(run))).first->second;
  }

  double peak_bytes(const LayoutChoice& c, const Candidate& candidate, const config::Run& run) {
    plan_ = resident(c, candidate, run);
    std::vector<StageMemory>& plan = plan_;
    // Too big even as a lower bound, and not the smallest.
    const auto is_hopeless = [&](double lower_bound) {
      return lower_bound > hardware_.usable_bytes() && result.smallest_bytes > 0 &&
             lower_bound >= result.smallest_bytes;
    };
    if (const double lower_bound = max_peak(run, plan); is_hopeless(lower_bound)) return lower_bound;
    const config::Run& equal = assumed(run);
    const int count = schedule::steady_state_microbatches(run.parallel, c.chunks,
                                                          static_cast<int>(rules::num_microbatches(equal)));
    const schedule::CheckedSchedule& sound = schedules_.get(run.parallel, c.chunks, count);
    if (const auto& known = cache_.option(run.recompute).peaks; !known.empty()) {
      add_activations(known.front().peaks, sound, plan);
      if (const double lower_bound = max_peak(run, plan);
          known.front().without_units && is_hopeless(lower_bound))
        return lower_bound;
    }
    add_activations(peaks(equal, sound, plan), sound, plan);
    if (max_peak(run, plan) <= hardware_.usable_bytes()) {
      if (config::has_eval_batch_size(equal.training))
        add_evaluations(ModelCost(evaluation_run(equal)), sound, plan);
      else
        add_evaluations(ModelCost(equal), sound, plan);
    }
    return max_peak(run, plan);
  }

  /// Shardings with equal units have equal peaks.
  const std::vector<ActivationPeak>& peaks(const config::Run& run, const schedule::CheckedSchedule& sound,
                                           const std::vector<StageMemory>& plan) {
    CandidateCache::Peaks now;
    for (const StageMemory& memory : plan) {
      now.without_units = now.without_units && memory.units.empty();
      now.units.push_back(memory.units);
    }
    auto& known = cache_.option(run.recompute).peaks;
    for (const auto& other : known)
      if (other.units == now.units) return other.peaks;
    const ModelCost model(run);
    if (!cache_.in_flight) cache_.in_flight = in_flight_bytes(model, sound, plan);
    now.peaks = activation_peaks(model, sound, *cache_.in_flight, plan);
    return known.emplace_back(std::move(now)).peaks;
  }

  static double max_peak(const config::Run& run, const std::vector<StageMemory>& plan) {
    return static_cast<double>(max_peak_bytes(run, plan));
  }

  void insert_best(FoundLayout layout) {
    auto found = std::make_shared<const FoundLayout>(std::move(layout));
    const auto position = std::upper_bound(best.begin(), best.end(), found, faster);
    if (best.size() == keep_ && position == best.end()) return;
    best.insert(position, std::move(found));
    if (best.size() > keep_) best.pop_back();
  }

  const config::Run& base_;
  const Hardware& hardware_;
  std::size_t keep_;
  double bound_ = std::numeric_limits<double>::infinity();  ///< step time of the layouts to beat
  config::Run assumed_;
  std::vector<StageMemory> plan_;  ///< last one of peak_bytes, whose memory the next one reuses
  std::vector<config::Recompute>
      recompute_options_;  ///< recomputation options; none if the settings choose one
  schedule::ScheduleCache schedules_;
  using Split = decltype(std::declval<LayoutChoice>().split());
  std::map<Split, bool> splits_;
  CandidateCache cache_;
  std::map<std::tuple<int, int, int>, LocalSizes> sizes_;
  using ShardingKey = decltype(std::declval<DataSharding>().key());
  std::map<std::tuple<Split, int, int, int, ShardingKey>, std::vector<StageMemory>> resident_;
};

/// Adds what an evaluator has found to `sum` and its at most `keep` layouts `best`.
void add(const Evaluator& evaluator, std::size_t keep, SearchResult& sum, FoundLayouts& best) {
  const SearchResult& part = evaluator.result;
  sum.candidates += part.candidates;
  for (const auto& [id, count] : part.rejected) sum.rejected[id] += count;
  sum.too_big += part.too_big;
  if (part.smallest_bytes > 0 && (sum.smallest_bytes == 0 || part.smallest_bytes < sum.smallest_bytes))
    sum.smallest_bytes = part.smallest_bytes;
  sum.pruned += part.pruned;
  sum.fit += part.fit;
  best.insert(best.end(), evaluator.best.begin(), evaluator.best.end());
  std::sort(best.begin(), best.end(), Evaluator::faster);
  if (best.size() > keep) best.resize(keep);
}

/// "TP comm +12 ms, bubble +3 ms": the two largest losses against the first layout.
std::string why_slower(const StepTime& t, const StepTime& first) {
  std::vector<std::pair<double, const char*>> parts{
      {t.compute - first.compute, "compute"},      {t.tensor - first.tensor, "TP comm"},
      {t.context - first.context, "CP comm"},      {t.dispatch - first.dispatch, "EP comm"},
      {t.bubble - first.bubble, "bubble"},         {t.data - first.data, "DP comm"},
      {t.optimizer - first.optimizer, "optimizer"}};
  std::sort(parts.rbegin(), parts.rend());
  std::string why;
  for (std::size_t i = 0; i < 2; ++i)
    if (parts[i].first > 5e-5)
      why += fmt::format("{}{} +{}", why.empty() ? "" : ", ", parts[i].second, duration_text(parts[i].first));
  return why;
}

/// Virtual stages per rank.
int chunks_of(const config::Run& run) {
  return layout::num_stages(run.model, run.parallel) / run.parallel.pipeline_model_parallel_size;
}

std::string schedule_text(const config::Run& run) {
  if (run.parallel.pipeline_model_parallel_size == 1) return "-";
  return std::string(schedule::schedule_kind(run.parallel, chunks_of(run)).name);
}

/// Split of the layers: "even", "with E" if the embedding counts as a layer, "with L" for the loss, or the
/// layout string.
std::string layers_text(const config::Parallel& p) {
  if (p.pipeline_model_parallel_size == 1) return "-";
  if (!p.pipeline_model_parallel_layout.empty()) return p.pipeline_model_parallel_layout;
  const bool first = p.account_for_embedding_in_pipeline_split, last = p.account_for_loss_in_pipeline_split;
  return first && last ? "with E and L" : first ? "with E" : last ? "with L" : "even";
}

std::string context_text(const config::Parallel& p) {
  if (p.hybrid_context_parallel) return fmt::format("hybrid {}", p.cp_comm_type.front());
  if (p.context_parallel_size == 1) return "1";
  return fmt::format("{} {}", p.context_parallel_size, p.cp_comm_type.front());
}

/// "-", "full", or the modules of selective recomputation.
std::string recompute_text(const config::Recompute& recompute) {
  if (!recompute.granularity) return "-";
  return recompute.is_full() ? "full" : fmt::format("{}", fmt::join(recompute.modules, " "));
}

/// "8 x 2 alltoall": expert and expert tensor sizes, and the dispatcher.
std::string experts_text(const config::Run& run) {
  const config::Parallel& p = run.parallel;
  if (run.model.moe.num_experts == 0) return "-";
  const std::string sizes = fmt::format("{} x {}", p.expert_model_parallel_size, p.expert_tensor_size());
  if (p.expert_model_parallel_size * p.expert_tensor_size() == 1) return sizes;
  return sizes + " " + config::text_of(run, config::setting("moe_token_dispatcher_type"));
}

/// The value of --data-parallel-sharding-strategy; "no reshard": parameters stay gathered until backward.
std::string sharding_text(const config::Parallel& p) {
  switch (layout::sharding_of(p)) {
    case layout::Sharding::kNone:
      return "no_shard";
    case layout::Sharding::kOptimizer:
      return "optim";
    case layout::Sharding::kGradients:
      return "optim_grads";
    case layout::Sharding::kParameters:
      return p.torch_fsdp2_reshard_after_forward ? "optim_grads_params" : "optim_grads_params, no reshard";
  }
  return "";
}

/// "1", "4", or "4 optim" with optimizer states sharded across instances.
std::string instances_text(const config::Parallel& p) {
  const bool outer = p.outer_dp_sharding_strategy == "optim";
  return fmt::format("{}{}", p.num_distributed_optimizer_instances, outer ? " optim" : "");
}

/// Runs work(0), ..., work(threads - 1) in parallel; rethrows the exception of the lowest index.
void in_threads(std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> faults(threads);
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        try {
          work(t);
        } catch (...) {
          faults[t] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& fault : faults)
    if (fault) std::rethrow_exception(fault);
}

}  // namespace

SearchResult search_layouts(const config::Run& run, const Hardware& hardware, std::size_t keep) {
  if (run.training.global_batch_size < 1)
    throw ConfigError(
        "--global-batch-size must be given for a search, which chooses the micro-batch; got none; write "
        "--global-batch-size N");
  const config::Run base = without_layout(run);
  const std::vector<LayoutChoice> choices = all_layout_choices(base);
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
  std::vector<Evaluator> evaluators(threads, Evaluator(base, hardware, keep));
  // Consecutive choices form blocks, which share an evaluator's cache. Each round covers all kinds of layouts
  // and tightens the bound for the next one. Results depend on the rounds, not on the threads.
  constexpr std::size_t kRounds = 64, kBlocksInRound = 16;
  const std::size_t block_size = std::clamp<std::size_t>(choices.size() / (kRounds * kBlocksInRound), 1, 64);
  const auto evaluate_round = [&](std::size_t round, std::size_t thread) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const std::size_t block = i / block_size;
      if (block % kRounds == round && block / kRounds % threads == thread)
        evaluators[thread].evaluate(choices[i]);
    }
  };
  SearchResult result;
  FoundLayouts best;
  for (std::size_t round = 0; round < kRounds; ++round) {
    in_threads(threads, [&](std::size_t thread) { evaluate_round(round, thread); });
    result = {};
    best.clear();
    for (const Evaluator& evaluator : evaluators) add(evaluator, keep, result, best);
    if (best.size() == keep)
      for (Evaluator& evaluator : evaluators) evaluator.set_bound(best.back()->time.step);
  }
  for (const auto& found : best) result.best.push_back(*found);
  return result;
}

std::vector<std::string> flags_between(const config::Run& from, const config::Run& to) {
  std::vector<std::string> words;
  for (const config::Setting& s : config::schema()) {
    if (s.set == nullptr || s.get == nullptr) continue;
    const std::string text = config::text_of(to, s);
    if (config::text_of(from, s) == text) continue;
    if (s.kind == config::Kind::kSwitch) {
      words.push_back(text == "true" ? s.flag : s.off_flag());
    } else {
      words.push_back(s.flag);
      words.push_back(text);
    }
  }
  return words;
}

Table search_table(const SearchResult& result) {
  Table table{{"#", "tensor", "pipeline", "virtual", "layers", "schedule", "context", "experts", "data",
               "micro-batch", "SP", "sharding", "instances", "recompute", "step", "tokens/s", "MFU",
               "peak memory", "slower by"}};
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const FoundLayout& f = result.best[i];
    const config::Parallel& p = f.run.parallel;
    const auto number = [](auto value) { return fmt::format("{}", value); };
    table.push_back(
        {number(i + 1), number(p.tensor_model_parallel_size), number(p.pipeline_model_parallel_size),
         number(chunks_of(f.run)), layers_text(p), schedule_text(f.run), context_text(p), experts_text(f.run),
         number(p.data_parallel_size()), number(f.run.training.micro_batch_size),
         p.sequence_parallel ? "yes" : "no", sharding_text(p), instances_text(p),
         recompute_text(f.run.recompute), duration_text(f.time.step),
         fmt::format("{:.1f}", f.time.tokens_per_second_per_device), fmt::format("{:.1f}%", 100 * f.time.mfu),
         bytes_text(f.peak_bytes), i == 0 ? "" : why_slower(f.time, result.best[0].time)});
  }
  return table;
}

std::string search_text(const SearchResult& result, const Hardware& hardware) {
  std::int64_t rejected = 0;
  std::vector<std::pair<std::int64_t, std::string>> rules;
  for (const auto& [id, count] : result.rejected) {
    rejected += count;
    rules.emplace_back(count, id);
  }
  std::sort(rules.rbegin(), rules.rend());
  std::string out =
      fmt::format("search on {}: {} candidates, {} fit\n", hardware.name, result.candidates, result.fit);
  out += fmt::format("  {} rejected by rules", rejected);
  for (std::size_t i = 0; i < rules.size(); ++i)
    out += fmt::format("{}{} {}", i == 0 ? ": " : ", ", rules[i].second, rules[i].first);
  out += fmt::format("\n  {} exceed the usable {} per device", result.too_big,
                     bytes_text(hardware.usable_bytes()));
  if (result.too_big > 0) out += fmt::format(" (smallest peak {})", bytes_text(result.smallest_bytes));
  if (result.pruned > 0) out += fmt::format("\n  {} pruned as slower than those below", result.pruned);
  out += "\n";
  if (result.best.empty()) return out;
  return out + "fastest layouts by estimate; tokens/s per device\n" + table_text(search_table(result));
}

}  // namespace colonnade::cost
