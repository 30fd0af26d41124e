// Sequences of a micro-batch: one for decoder-only models; for encoder-decoder models those of encoder and
// decoder, which blocks pass on together. Block costs are written for one sequence; each block finds its own.
#pragma once

#include <vector>

#include "colonnade/cost/blocks/sizes.h"

namespace colonnade::cost {

class Sequences {
 public:
  /// `run` must outlive it.
  explicit Sequences(const config::Run& run) {
    const config::Training& t = run.training;
    all_.reserve(2);
    all_.emplace_back(run, t.seq_length);
    if (run.model.has_encoder()) all_.emplace_back(run, t.decoder_seq_length);
    for (const Sizes& z : all_) hidden_ += z.hidden;
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  /// Number of the sequence that `layer` (global number) processes.
  static std::size_t of_layer(const config::Model& model, std::int64_t layer) {
    return model.has_encoder() && layer >= model.encoder_num_layers ? 1 : 0;
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
