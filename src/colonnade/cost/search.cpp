// Enumerates layouts, asks the rules, the memory plan and the estimate, in this order.
#include "colonnade/cost/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <thread>
#include <tuple>

#include "colonnade/base/error.h"
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

/// What candidates have in common that differ by what ranks share alone, as long as they follow one another.
struct Neighbours {
  const Choices* choices = nullptr;
  std::int64_t micro_batch = 0;
  bool by_sequence = false;
  std::optional<BytesBeside> beside;
  struct Peaks {
    std::vector<std::vector<std::vector<UnitBytes>>> units;  ///< by rank, as StageMemory's
    bool of_no_units = true;                                 ///< with units passes need no less
    std::vector<PassPeak> peaks;
  };
  struct OneWay {  ///< of making layers again
    config::Recompute recompute;
    std::vector<Peaks> peaks;
    std::optional<StepPasses> passes;
  };
  std::vector<OneWay> ways;

  OneWay& way(const config::Recompute& recompute) {
    const auto found = std::ranges::find(ways, recompute, &OneWay::recompute);
    return found != ways.end() ? *found
                               : ways.emplace_back(OneWay{.recompute = recompute, .peaks = {}, .passes = {}});
  }
};

/// What is known of one thread's candidates.
class Judge {
 public:
  Judge(const config::Run& base, const Hardware& hardware, std::size_t keep)
      : base_(base), hardware_(hardware), keep_(keep) {
    if (!base.recompute.granularity) again_ = ways_to_make_again(base.model);
  }

  /// From now on layouts are left alone that take longer.
  void set_bound(double step) { bound_ = step; }

  void judge(const Choices& c) {
    const std::vector<Choice> choices = choices_of(base_, c, hardware_.devices_per_node);
    result.candidates += static_cast<std::int64_t>(choices.size());
    if (splits(c)) {
      for (const Choice& choice : choices) judge(c, choice);
    } else if (!choices.empty()) {
      result.refused["pipeline-split"] += static_cast<std::int64_t>(choices.size());
    }
  }

  static bool faster(const FoundLayout& a, const FoundLayout& b) {
    const auto key = [](const FoundLayout& f) {
      const config::Parallel& p = f.run.parallel;
      return std::tuple(
          f.time.step, f.peak_bytes, p.tensor_model_parallel_size, p.pipeline_model_parallel_size,
          p.context_parallel_size, p.cp_comm_type, p.expert_model_parallel_size, p.expert_tensor(),
          f.run.model.moe.token_dispatcher_type, p.pipeline_schedule, p.num_virtual_stages_per_pipeline_rank,
          f.run.training.micro_batch_size, p.account_for_embedding_in_pipeline_split,
          p.account_for_loss_in_pipeline_split, p.pipeline_model_parallel_layout, p.sequence_parallel,
          p.use_megatron_fsdp, p.data_parallel_sharding_strategy, p.use_distributed_optimizer,
          p.torch_fsdp2_reshard_after_forward, p.overlap_param_gather, p.num_distributed_optimizer_instances,
          p.outer_dp_sharding_strategy);
    };
    return key(a) < key(b);
  }

  SearchResult result;

 private:
  void judge(const Choices& c, const Choice& choice) {
    if (&c != near_.choices || choice.micro_batch != near_.micro_batch ||
        choice.by_sequence != near_.by_sequence)
      near_ = {.choices = &c,
               .micro_batch = choice.micro_batch,
               .by_sequence = choice.by_sequence,
               .beside = {},
               .ways = {}};
    if (are_slow(near_.way(base_.recompute).passes)) {  // whatever is shared
      ++result.slower;
      return;
    }
    config::Run given = run_of(base_, c, choice);
    config::Run run = given;
    config::derive(run);
    if (const auto id = rules::first_broken(run, rules::Purpose::kPlan)) {
      ++result.refused[*id];
      return;
    }
    if (is_slow(c, choice, run)) {
      ++result.slower;
      return;
    }
    double peak = peak_bytes(c, choice, run);
    if (peak > hardware_.usable_bytes() && !again_.empty()) {
      peak = std::min(peak, make_again(c, choice, run));
      given.recompute = run.recompute;
    }
    if (peak > hardware_.usable_bytes()) {
      ++result.too_big;
      if (result.smallest_bytes == 0 || peak < result.smallest_bytes) result.smallest_bytes = peak;
      return;
    }
    ++result.fit;
    keep_best({std::move(given), time_of(c, run), peak});
  }

  /// Whether these passes take longer alone than the layouts to beat do with all the rest.
  [[nodiscard]] bool are_slow(const std::optional<StepPasses>& passes) const {
    return passes && std::max(passes->most.total(), passes->pipeline.makespan) > bound_;
  }

  /// Whether the run takes longer than the layouts to beat even if nothing need be made again. Of what does
  /// not fit whatever is made again, that is not asked.
  bool is_slow(const Choices& c, const Choice& choice, const config::Run& run) {
    return std::isfinite(bound_) && fullest(run, resident(c, choice, run)) <= hardware_.usable_bytes() &&
           time_of(c, run).step > bound_;
  }

  StepTime time_of(const Choices& c, const config::Run& run) {
    auto& passes = near_.way(run.recompute).passes;
    if (!passes) passes = step_passes(assumed(run), hardware_, {}, schedules_);
    return estimate_step(assumed(run), hardware_, sizes(c, run), *passes);
  }

  /// What a plan of the run describes.
  const config::Run& assumed(const config::Run& run) {
    return run.parallel.hybrid_context_parallel ? assumed_ = layout::with_equal_groups(run) : run;
  }

  /// Makes as little again as lets the layout fit, and gives its peak. The last way keeps least: where it
  /// does not fit, none does.
  double make_again(const Choices& c, const Choice& choice, config::Run& run) {
    const auto peak_with = [&](const config::Recompute& way) {
      run.recompute = way;
      return rules::first_broken(run, rules::Purpose::kPlan) ? std::numeric_limits<double>::infinity()
                                                             : peak_bytes(c, choice, run);
    };
    const double least = peak_with(again_.back());
    if (std::isfinite(least) && least > hardware_.usable_bytes()) return least;
    for (std::size_t i = 0; i + 1 < again_.size(); ++i)
      if (const double peak = peak_with(again_[i]); peak <= hardware_.usable_bytes()) return peak;
    run.recompute = again_.back();
    return least;
  }

  /// Whether the layers can be split, the commonest fault and the same for all tensor sizes and batches.
  bool splits(const Choices& c) {
    if (const auto found = splits_.find(c.split()); found != splits_.end()) return found->second;
    bool can = true;
    try {
      config::Run run = run_of(base_, c, {});
      config::derive(run);
      layout::split_stages(run.model, run.parallel);
    } catch (const ConfigError&) {
      can = false;
    }
    return splits_.emplace(c.split(), can).first->second;
  }

  const LocalSizes& sizes(const Choices& c, const config::Run& run) {
    const std::tuple key(c.tensor, c.expert, c.expert_tensor);
    if (!sizes_.contains(key)) sizes_.emplace(key, local_sizes(run));
    return sizes_.at(key);
  }

  /// What lies on the ranks in every phase.
  const std::vector<StageMemory>& resident(const Choices& c, const Choice& choice, const config::Run& run) {
    const std::tuple key(c.split(), c.tensor, c.expert, c.expert_tensor, choice.shares.key());
    const auto found = resident_.find(key);
    return found != resident_.end() ? found->second
                                    : resident_.emplace(key, plan_resident(run)).first->second;
  }

  double peak_bytes(const Choices& c, const Choice& choice, const config::Run& run) {
    std::vector<StageMemory> plan = resident(c, choice, run);
    // Too big whatever comes on top, and not the smallest.
    const auto hopeless = [&](double least) {
      return least > hardware_.usable_bytes() && result.smallest_bytes > 0 && least >= result.smallest_bytes;
    };
    if (const double least = fullest(run, plan); hopeless(least)) return least;
    const config::Run& equal = assumed(run);
    const int count = schedule::steady_microbatches(run.parallel, c.chunks,
                                                    static_cast<int>(rules::num_microbatches(equal)));
    const schedule::SoundSchedule& sound = schedules_.of(run.parallel, c.chunks, count);
    if (const auto& known = near_.way(run.recompute).peaks; !known.empty()) {
      add_passes(known.front().peaks, sound, plan);
      if (const double least = fullest(run, plan); known.front().of_no_units && hopeless(least)) return least;
    }
    add_passes(peaks(equal, sound, plan), sound, plan);
    if (fullest(run, plan) <= hardware_.usable_bytes()) add_evaluations(equal, sound, plan);
    return fullest(run, plan);
  }

  /// Those of ways to share that have the same units are the same.
  const std::vector<PassPeak>& peaks(const config::Run& run, const schedule::SoundSchedule& sound,
                                     const std::vector<StageMemory>& plan) {
    Neighbours::Peaks now;
    for (const StageMemory& memory : plan) {
      now.of_no_units = now.of_no_units && memory.units.empty();
      now.units.push_back(memory.units);
    }
    auto& known = near_.way(run.recompute).peaks;
    for (const auto& other : known)
      if (other.units == now.units) return other.peaks;
    if (!near_.beside) near_.beside = bytes_beside(run, sound, plan);
    now.peaks = peaks_of_passes(run, sound, *near_.beside, plan);
    return known.emplace_back(std::move(now)).peaks;
  }

  static double fullest(const config::Run& run, const std::vector<StageMemory>& plan) {
    return static_cast<double>(fullest_bytes(run, plan));
  }

  void keep_best(FoundLayout found) {
    auto& best = result.best;
    const auto place = std::upper_bound(best.begin(), best.end(), found, faster);
    if (best.size() == keep_ && place == best.end()) return;
    best.insert(place, std::move(found));
    if (best.size() > keep_) best.pop_back();
  }

  const config::Run& base_;
  const Hardware& hardware_;
  std::size_t keep_;
  double bound_ = std::numeric_limits<double>::infinity();  ///< step time of the layouts to beat
  config::Run assumed_;
  std::vector<config::Recompute> again_;  ///< ways to try; none where the settings say one
  schedule::KnownSchedules schedules_;
  using Split = decltype(std::declval<Choices>().split());
  std::map<Split, bool> splits_;
  Neighbours near_;
  std::map<std::tuple<int, int, int>, LocalSizes> sizes_;
  using SharesKey = decltype(std::declval<Shares>().key());
  std::map<std::tuple<Split, int, int, int, SharesKey>, std::vector<StageMemory>> resident_;
};

void add(const SearchResult& part, std::size_t keep, SearchResult& sum) {
  sum.candidates += part.candidates;
  for (const auto& [id, count] : part.refused) sum.refused[id] += count;
  sum.too_big += part.too_big;
  if (part.smallest_bytes > 0 && (sum.smallest_bytes == 0 || part.smallest_bytes < sum.smallest_bytes))
    sum.smallest_bytes = part.smallest_bytes;
  sum.slower += part.slower;
  sum.fit += part.fit;
  sum.best.insert(sum.best.end(), part.best.begin(), part.best.end());
  std::sort(sum.best.begin(), sum.best.end(), Judge::faster);
  if (sum.best.size() > keep) sum.best.resize(keep);
}

/// "tensor ranks +12 ms, pipeline idle +3 ms": the two parts that lose most against the first layout.
std::string why_slower(const StepTime& t, const StepTime& first) {
  std::vector<std::pair<double, const char*>> parts{
      {t.compute - first.compute, "compute"},       {t.tensor - first.tensor, "tensor ranks"},
      {t.context - first.context, "context ranks"}, {t.experts - first.experts, "expert ranks"},
      {t.bubble - first.bubble, "pipeline idle"},   {t.data - first.data, "data ranks"},
      {t.optimizer - first.optimizer, "optimizer"}};
  std::sort(parts.rbegin(), parts.rend());
  std::string why;
  for (std::size_t i = 0; i < 2; ++i)
    if (parts[i].first > 5e-5)
      why += fmt::format("{}{} +{}", why.empty() ? "" : ", ", parts[i].second, duration_text(parts[i].first));
  return why;
}

/// Virtual stages of a rank.
int chunks_of(const config::Run& run) {
  return static_cast<int>(layout::split_stages(run.model, run.parallel).size()) /
         run.parallel.pipeline_model_parallel_size;
}

std::string schedule_text(const config::Run& run) {
  if (run.parallel.pipeline_model_parallel_size == 1) return "-";
  return std::string(schedule::schedule_kind(run.parallel, chunks_of(run)).name);
}

/// "even", or what --pipeline-model-parallel-layout says.
std::string layers_text(const config::Parallel& p) {
  if (p.pipeline_model_parallel_size == 1) return "-";
  if (!p.pipeline_model_parallel_layout.empty()) return p.pipeline_model_parallel_layout;
  const bool first = p.account_for_embedding_in_pipeline_split, last = p.account_for_loss_in_pipeline_split;
  return first && last ? "with E and L" : first ? "with E" : last ? "with L" : "even";
}

std::string context_text(const config::Parallel& p) {
  if (p.hybrid_context_parallel) return fmt::format("by length {}", p.cp_comm_type.front());
  if (p.context_parallel_size == 1) return "1";
  return fmt::format("{} {}", p.context_parallel_size, p.cp_comm_type.front());
}

/// "-", "layers" or the parts of each.
std::string again_text(const config::Recompute& recompute) {
  if (!recompute.granularity) return "-";
  return recompute.full() ? "layers" : fmt::format("{}", fmt::join(recompute.modules, " "));
}

/// "8 x 2 alltoall": expert ranks and expert tensor ranks, and how rows reach them.
std::string experts_text(const config::Run& run) {
  const config::Parallel& p = run.parallel;
  if (run.model.moe.num_experts == 0) return "-";
  const std::string sizes = fmt::format("{} x {}", p.expert_model_parallel_size, p.expert_tensor());
  if (p.expert_model_parallel_size * p.expert_tensor() == 1) return sizes;
  return sizes + " " + config::text_of(run, config::setting("moe_token_dispatcher_type"));
}

/// As --data-parallel-sharding-strategy calls it; "kept": gathered weights stay from pass to pass.
std::string sharding_text(const config::Parallel& p) {
  switch (layout::sharding_of(p)) {
    case layout::Sharding::kNone:
      return "no_shard";
    case layout::Sharding::kOptimizer:
      return "optim";
    case layout::Sharding::kGradients:
      return "optim_grads";
    case layout::Sharding::kParameters:
      return p.torch_fsdp2_reshard_after_forward ? "optim_grads_params" : "optim_grads_params kept";
  }
  return "";
}

/// "1", "4", or "4 optim" where they share the update.
std::string instances_text(const config::Parallel& p) {
  const bool outer = p.outer_dp_sharding_strategy == "optim";
  return fmt::format("{}{}", p.num_distributed_optimizer_instances, outer ? " optim" : "");
}

/// Calls work(0), ... work(threads - 1) side by side; throws what the first of them threw.
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
  const std::vector<Choices> choices = all_choices(base);
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
  std::vector<Judge> judges(threads, Judge(base, hardware, keep));
  // In blocks of neighbours, which share what a judge remembers; in rounds that go through all kinds of
  // layouts, after each of which it is known what to beat. What is found and counted depends on the rounds
  // and not on the threads.
  constexpr std::size_t kRounds = 64, kBlocksInRound = 16;
  const std::size_t block_size = std::clamp<std::size_t>(choices.size() / (kRounds * kBlocksInRound), 1, 64);
  const auto judge_round = [&](std::size_t round, std::size_t thread) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const std::size_t block = i / block_size;
      if (block % kRounds == round && block / kRounds % threads == thread) judges[thread].judge(choices[i]);
    }
  };
  SearchResult result;
  for (std::size_t round = 0; round < kRounds; ++round) {
    in_threads(threads, [&](std::size_t thread) { judge_round(round, thread); });
    result = {};
    for (const Judge& judge : judges) add(judge.result, keep, result);
    if (result.best.size() == keep)
      for (Judge& judge : judges) judge.set_bound(result.best.back().time.step);
  }
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
               "micro-batch", "SP", "sharding", "instances", "made again", "step", "tokens/s", "MFU",
               "peak memory", "slower by"}};
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const FoundLayout& f = result.best[i];
    const config::Parallel& p = f.run.parallel;
    const auto number = [](auto value) { return fmt::format("{}", value); };
    table.push_back(
        {number(i + 1), number(p.tensor_model_parallel_size), number(p.pipeline_model_parallel_size),
         number(chunks_of(f.run)), layers_text(p), schedule_text(f.run), context_text(p), experts_text(f.run),
         number(p.data_parallel_size()), number(f.run.training.micro_batch_size),
         p.sequence_parallel ? "yes" : "no", sharding_text(p), instances_text(p), again_text(f.run.recompute),
         duration_text(f.time.step), fmt::format("{:.1f}", f.time.tokens_per_second_per_device),
         fmt::format("{:.1f}%", 100 * f.time.mfu), bytes_text(f.peak_bytes),
         i == 0 ? "" : why_slower(f.time, result.best[0].time)});
  }
  return table;
}

std::string search_text(const SearchResult& result, const Hardware& hardware) {
  std::int64_t refused = 0;
  std::vector<std::pair<std::int64_t, std::string>> rules;
  for (const auto& [id, count] : result.refused) {
    refused += count;
    rules.emplace_back(count, id);
  }
  std::sort(rules.rbegin(), rules.rend());
  std::string out =
      fmt::format("search on {}: {} candidates, {} fit\n", hardware.name, result.candidates, result.fit);
  out += fmt::format("  {} break a rule", refused);
  for (std::size_t i = 0; i < rules.size(); ++i)
    out += fmt::format("{}{} {}", i == 0 ? ": " : ", ", rules[i].second, rules[i].first);
  out += fmt::format("\n  {} need more than the {} that tensors may take", result.too_big,
                     bytes_text(hardware.usable_bytes()));
  if (result.too_big > 0) out += fmt::format(" (the smallest of them {})", bytes_text(result.smallest_bytes));
  if (result.slower > 0)
    out += fmt::format("\n  {} take longer than those below, were they to fit", result.slower);
  out += "\n";
  if (result.best.empty()) return out;
  return out + "fastest by estimate; tokens/s of one device\n" + table_text(search_table(result));
}

}  // namespace colonnade::cost
