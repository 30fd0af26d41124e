// Sequences of a micro-batch, one per stack of the model (config::stacks); blocks pass them on together.
// Block costs are written for one sequence; each block finds its own.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/stacks.h"
#include "colonnade/cost/blocks/sizes.h"

namespace colonnade::cost {

class Sequences {
 public:
  /// `run` must outlive it.
  explicit Sequences(const config::Run& run) {
    const std::vector<std::int64_t> lengths = config::sequence_lengths(run.model, run.training);
    all_.reserve(lengths.size());
    for (const std::int64_t length : lengths) all_.emplace_back(run, length);
    for (const Sizes& z : all_) hidden_ += z.stream;
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  /// Number of the sequence that `layer` (global number) processes.
  static std::size_t of_layer(const config::Model& model, std::int64_t layer) {
    return config::stack_of_layer(model, layer);
  }

  /// By number.
  [[nodiscard]] const std::vector<Sizes>& all() const { return all_; }
  /// Sizes of the sequence that the head processes, the last one.
  [[nodiscard]] const Sizes& tokens() const { return all_.back(); }
  [[nodiscard]] bool several() const { return all_.size() > 1; }
  /// Bytes of the hidden states that blocks pass on, of all sequences.
  [[nodiscard]] std::int64_t hidden() const { return hidden_; }

 private:
  std::vector<Sizes> all_;
  std::int64_t hidden_ = 0;
};

}  // namespace colonnade::cost
