// Packed samples of documents with a long-tailed length distribution: most short, a few as long as a sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "colonnade/data/samples/gpt/gpt_batches.h"

namespace colonnade::test {

/// Documents with log-normal lengths of median about exp(middle); each ends with `eod`.
class LongTailed final : public data::SampleSource {
 public:
  LongTailed(double middle, std::int64_t eod) : middle_(middle), eod_(eod) {}
  [[nodiscard]] std::int64_t size() const override { return 1'000'000; }
  void tokens(std::int64_t number, std::int64_t, std::span<std::int64_t> out) const override {
    std::mt19937_64 random(static_cast<std::uint64_t>(number) + 7);
    const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1.0p-53; };
    std::int64_t left = 0;
    for (std::int64_t& token : out) {
      if (left == 0)
        left = static_cast<std::int64_t>(std::exp(middle_ + 1.5 * std::sqrt(-2 * std::log(uniform())) *
                                                                std::cos(2 * std::numbers::pi * uniform()))) +
               1;
      --left;
      token = left == 0 ? eod_ : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(eod_));
    }
  }
  [[nodiscard]] std::string name() const override { return "long-tailed documents"; }
  [[nodiscard]] std::vector<data::SampleOrder> orders() const override { return {}; }
  [[nodiscard]] std::vector<data::SampleSpan> spans(std::int64_t) const override { return {}; }
  void read(const data::SampleSpan&, std::span<std::int64_t>) const override {}
  void for_each_source(const data::SourceVisitor&) const override {}

 private:
  double middle_;
  std::int64_t eod_;
};

/// Batches for `run` with long-tailed documents, and positions and attention reset at each.
inline data::GptBatches long_tailed(const config::Run& run, double middle) {
  const std::int64_t eod = run.model.vocab_size - 1;
  return {std::make_shared<LongTailed>(middle, eod),
          {.seq_length = run.training.seq_length,
           .rules = {.eod = eod, .reset_position_ids = true},
           .documents = data::DocumentSeparators::kEnds,
           .vocab_size = run.model.vocab_size}};
}

}  // namespace colonnade::test
