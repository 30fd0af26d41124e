// Sequences of a micro-batch: one for decoder-only models, two for encoder-decoder models, whose blocks pass
// both on together. Block costs are written for one sequence; here each block finds its own.
#pragma once

#include <optional>

#include "colonnade/cost/blocks/sizes.h"

namespace colonnade::cost {

class Sequences {
 public:
  /// `run` must outlive it.
  explicit Sequences(const config::Run& run) : tokens_(run, tokens_length(run)) {
    if (run.model.has_encoder()) encoder_.emplace(run, run.training.seq_length);
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  /// Sizes of the sequence that embedding and head process; with an encoder, the decoder's.
  [[nodiscard]] const Sizes& tokens() const { return tokens_; }
  /// Sizes of the encoder's sequence; null without an encoder.
  [[nodiscard]] const Sizes* encoder() const { return encoder_ ? &*encoder_ : nullptr; }

  /// Bytes of the hidden states that blocks pass on, of both sequences.
  [[nodiscard]] std::int64_t hidden() const { return tokens_.hidden + (encoder_ ? encoder_->hidden : 0); }

 private:
  static std::int64_t tokens_length(const config::Run& run) {
    return run.model.has_encoder() ? run.training.decoder_seq_length : run.training.seq_length;
  }
  Sizes tokens_;
  std::optional<Sizes> encoder_;
};

}  // namespace colonnade::cost
