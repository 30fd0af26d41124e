// Enumerates layouts, asks the rules, the memory plan and the estimate, in this order.
#include "colonnade/plan/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/schema.h"
#include "colonnade/plan/memory.h"
#include "colonnade/plan/rules.h"

namespace colonnade::plan {
namespace {

constexpr int kMostTensorRanks = 64;
constexpr int kMostChunks = 16;
constexpr std::int64_t kLargestMicroBatch = 16;

/// What a candidate says.
struct Choice {
  int tensor, pipeline, chunks;
  bool embedding_counts, loss_counts;
  std::int64_t micro_batch;
  bool by_sequence, distributed;
};

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int d = 1; d <= number; ++d)
    if (number % d == 0) all.push_back(d);
  return all;
}

/// Those of one split of the ranks.
void add_choices(std::int64_t batch, int data, Choice c, std::vector<Choice>& out) {
  for (c.micro_batch = 1; c.micro_batch <= std::min(kLargestMicroBatch, batch / data); ++c.micro_batch) {
    if (batch % (c.micro_batch * data) != 0) continue;
    for (const bool by_sequence : {true, false}) {
      if (by_sequence && c.tensor == 1) continue;
      for (const bool distributed : {true, false}) {
        if (distributed && data == 1) continue;
        c.by_sequence = by_sequence;
        c.distributed = distributed;
        out.push_back(c);
      }
    }
  }
}

/// Those of one tensor and pipeline size.
void add_stages(const config::Run& run, int tensor, int pipeline, int data, std::vector<Choice>& out) {
  const std::int64_t batch = run.training.global_batch_size;
  if (pipeline == 1) return add_choices(batch, data, {tensor, 1, 1, false, false}, out);
  for (const bool embedding : {false, true}) {
    for (const bool loss : {false, true}) {
      const std::int64_t slots = run.model.num_layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
      const auto most = std::clamp<std::int64_t>(slots / pipeline, 1, kMostChunks);
      for (int chunks = 1; chunks <= most; ++chunks)
        add_choices(batch, data, {tensor, pipeline, chunks, embedding, loss}, out);
    }
  }
}

std::vector<Choice> all_choices(const config::Run& run) {
  std::vector<Choice> choices;
  const int world = run.parallel.world_size / run.parallel.context_parallel_size;
  for (const int tensor : divisors(world)) {
    if (tensor > kMostTensorRanks) break;
    for (const int pipeline : divisors(world / tensor))
      if (pipeline <= run.model.num_layers + 2)
        add_stages(run, tensor, pipeline, world / tensor / pipeline, choices);
  }
  return choices;
}

/// The settings of a candidate.
config::Run run_of(const config::Run& base, const Choice& c) {
  config::Run run = base;
  config::Parallel& p = run.parallel;
  p.tensor_model_parallel_size = c.tensor;
  p.pipeline_model_parallel_size = c.pipeline;
  p.num_virtual_stages_per_pipeline_rank = c.chunks > 1 ? c.chunks : 0;
  p.account_for_embedding_in_pipeline_split = c.embedding_counts;
  p.account_for_loss_in_pipeline_split = c.loss_counts;
  p.sequence_parallel = c.by_sequence;
  const bool data = p.data_parallel_size() > 1;
  p.use_distributed_optimizer = c.distributed;
  p.overlap_grad_reduce = data;
  p.overlap_param_gather = c.distributed;
  run.training.micro_batch_size = c.micro_batch;
  return run;
}

/// A base without what belongs to another layout.
config::Run bare(config::Run run) {
  config::Parallel& p = run.parallel;
  p.pipeline_schedule = "auto";
  p.delay_wgrad_compute = false;
  p.num_layers_per_virtual_pipeline_stage = 0;
  p.microbatch_group_size_per_virtual_pipeline_stage = 0;
  p.decoder_first_pipeline_num_layers = p.decoder_last_pipeline_num_layers = 0;
  p.pipeline_model_parallel_layout.clear();
  return run;
}

/// What is known of one thread's candidates.
class Judge {
 public:
  Judge(const config::Run& base, const Hardware& hardware, std::size_t keep)
      : base_(base), hardware_(hardware), keep_(keep) {}

  void judge(const Choice& c) {
    ++result.candidates;
    config::Run given = run_of(base_, c);
    config::Run run = given;
    config::derive(run);
    if (const auto id = first_broken(c, run)) {
      ++result.refused[*id];
      return;
    }
    double peak = peak_bytes(c, run);
    if (peak > hardware_.usable_bytes() && !base_.recompute.granularity) {
      given.recompute = run.recompute = {.granularity = "full", .method = "uniform", .num_layers = 1};
      peak = peak_bytes(c, run);
    }
    if (peak > hardware_.usable_bytes()) {
      ++result.too_big;
      if (result.smallest_bytes == 0 || peak < result.smallest_bytes) result.smallest_bytes = peak;
      return;
    }
    ++result.fit;
    const StepTime time = estimate_step(run, hardware_, {}, sizes(c, run), schedules_);
    keep_best({std::move(given), time, peak});
  }

  static bool faster(const FoundLayout& a, const FoundLayout& b) {
    const auto key = [](const FoundLayout& f) {
      const config::Parallel& p = f.run.parallel;
      return std::tuple(f.time.step, f.peak_bytes, p.tensor_model_parallel_size,
                        p.pipeline_model_parallel_size, p.num_virtual_stages_per_pipeline_rank,
                        f.run.training.micro_batch_size, p.account_for_embedding_in_pipeline_split,
                        p.account_for_loss_in_pipeline_split, p.sequence_parallel);
    };
    return key(a) < key(b);
  }

  SearchResult result;

 private:
  /// Whether the layers can be split, the commonest fault and the same for all tensor sizes and batches.
  bool splits(const Choice& c, const config::Run& run) {
    const std::array key{c.pipeline, c.chunks, c.embedding_counts ? 1 : 0, c.loss_counts ? 1 : 0};
    if (const auto found = splits_.find(key); found != splits_.end()) return found->second;
    bool can = true;
    try {
      split_stages(run.model, run.parallel);
    } catch (const ConfigError&) {
      can = false;
    }
    return splits_.emplace(key, can).first->second;
  }

  /// No rule asks which optimizer it is.
  std::optional<std::string> first_broken(const Choice& c, const config::Run& run) {
    if (!splits(c, run)) return "pipeline-split";
    const std::array key{c.tensor,
                         c.pipeline,
                         c.chunks,
                         c.embedding_counts ? 1 : 0,
                         c.loss_counts ? 1 : 0,
                         static_cast<int>(c.micro_batch),
                         c.by_sequence ? 1 : 0};
    if (key == judged_) return broken_;
    judged_ = key;
    const auto problems = check(run, Purpose::kPlan);
    broken_ = problems.empty() ? std::nullopt : std::optional(problems.front().id);
    return broken_;
  }

  const LocalSizes& sizes(const Choice& c, const config::Run& run) {
    const std::pair key(c.tensor, c.pipeline > 1);
    if (!sizes_.contains(key)) sizes_.emplace(key, local_sizes(run));
    return sizes_.at(key);
  }

  double peak_bytes(const Choice& c, const config::Run& run) {
    const std::array key{c.tensor,
                         c.pipeline,
                         c.chunks,
                         c.embedding_counts ? 1 : 0,
                         c.loss_counts ? 1 : 0,
                         c.distributed ? 1 : 0};
    auto resident = resident_.find(key);
    if (resident == resident_.end()) resident = resident_.emplace(key, plan_resident(run)).first;
    std::vector<StageMemory> plan = resident->second;
    const int count = steady_microbatches(run.parallel, c.chunks, static_cast<int>(num_microbatches(run)));
    const auto& known = schedules_.of(run.parallel, c.chunks, count);
    add_activations(run, known.schedule, known.report, plan);
    double peak = 0;
    for (const StageMemory& m : plan)
      peak = std::max(peak, static_cast<double>(std::max(m.peak(), m.start_up())));
    return peak;
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
  KnownSchedules schedules_;
  std::map<std::array<int, 4>, bool> splits_;
  std::array<int, 7> judged_{};
  std::optional<std::string> broken_;
  std::map<std::pair<int, bool>, LocalSizes> sizes_;
  std::map<std::array<int, 6>, std::vector<StageMemory>> resident_;
};

void add(const SearchResult& part, std::size_t keep, SearchResult& sum) {
  sum.candidates += part.candidates;
  for (const auto& [id, count] : part.refused) sum.refused[id] += count;
  sum.too_big += part.too_big;
  if (part.smallest_bytes > 0 && (sum.smallest_bytes == 0 || part.smallest_bytes < sum.smallest_bytes))
    sum.smallest_bytes = part.smallest_bytes;
  sum.fit += part.fit;
  sum.best.insert(sum.best.end(), part.best.begin(), part.best.end());
  std::sort(sum.best.begin(), sum.best.end(), Judge::faster);
  if (sum.best.size() > keep) sum.best.resize(keep);
}

/// "tensor ranks +12 ms, pipeline idle +3 ms": the two parts that lose most against the first layout.
std::string why_slower(const StepTime& t, const StepTime& first) {
  std::vector<std::pair<double, const char*>> parts{{t.compute - first.compute, "compute"},
                                                    {t.tensor - first.tensor, "tensor ranks"},
                                                    {t.bubble - first.bubble, "pipeline idle"},
                                                    {t.data - first.data, "data ranks"},
                                                    {t.optimizer - first.optimizer, "optimizer"}};
  std::sort(parts.rbegin(), parts.rend());
  std::string why;
  for (std::size_t i = 0; i < 2; ++i)
    if (parts[i].first > 5e-5)
      why += fmt::format("{}{} +{:.1f} ms", why.empty() ? "" : ", ", parts[i].second, parts[i].first * 1e3);
  return why;
}

}  // namespace

SearchResult search_layouts(const config::Run& run, const Hardware& hardware, std::size_t keep) {
  if (run.training.global_batch_size < 1)
    throw ConfigError(
        "--global-batch-size: must be given for a search, which chooses the micro-batch; got none; write "
        "--global-batch-size N");
  const config::Run base = bare(run);
  const std::vector<Choice> choices = all_choices(base);
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
  std::vector<std::unique_ptr<Judge>> judges;
  std::vector<std::exception_ptr> faults(threads);
  for (std::size_t t = 0; t < threads; ++t) judges.push_back(std::make_unique<Judge>(base, hardware, keep));
  {
    std::vector<std::jthread> workers;
    // In blocks of neighbours, which share what a judge remembers.
    constexpr std::size_t kBlock = 256;
    for (std::size_t t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        try {
          for (std::size_t begin = t * kBlock; begin < choices.size(); begin += threads * kBlock)
            for (std::size_t i = begin; i < std::min(begin + kBlock, choices.size()); ++i)
              judges[t]->judge(choices[i]);
        } catch (...) {
          faults[t] = std::current_exception();
        }
      });
    }
  }
  SearchResult result;
  for (std::size_t t = 0; t < threads; ++t) {
    if (faults[t]) std::rethrow_exception(faults[t]);
    add(judges[t]->result, keep, result);
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
  Table table{{"#", "tensor", "pipeline", "virtual", "data", "micro-batch", "SP", "dist. opt.",
               "layers again", "ms a step", "tokens/s", "MFU", "peak memory", "slower by"}};
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const FoundLayout& f = result.best[i];
    const config::Parallel& p = f.run.parallel;
    const auto number = [](auto value) { return fmt::format("{}", value); };
    table.push_back(
        {number(i + 1), number(p.tensor_model_parallel_size), number(p.pipeline_model_parallel_size),
         number(std::max(1, p.num_virtual_stages_per_pipeline_rank)), number(p.data_parallel_size()),
         number(f.run.training.micro_batch_size), p.sequence_parallel ? "yes" : "no",
         p.use_distributed_optimizer ? "yes" : "no", f.run.recompute.full() ? "yes" : "no",
         fmt::format("{:.1f}", f.time.step * 1e3), fmt::format("{:.1f}", f.time.tokens_per_second_per_device),
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
  out += "\n";
  if (result.best.empty()) return out;
  return out + "fastest by estimate; tokens/s of one device\n" + table_text(search_table(result));
}

}  // namespace colonnade::plan
