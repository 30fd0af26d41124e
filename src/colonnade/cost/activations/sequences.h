// Sequences of a micro-batch: one for decoder-only models, two for encoder-decoder models, whose blocks pass
// both on together. Layer formulas are written for one sequence; here each layer finds its own.
#pragma once

#include <memory>

#include "colonnade/cost/activations/sizes.h"

namespace colonnade::cost {

class Sequences {
 public:
  /// `run` must outlive it.
  explicit Sequences(const config::Run& run);

  /// The settings with the sequence length of a layer.
  [[nodiscard]] const config::Run& run(std::int64_t layer) const {
    return is_encoder_layer(layer) ? encoder_->run : tokens_run();
  }
  /// Sizes of a layer's sequence.
  [[nodiscard]] const Sizes& of(std::int64_t layer) const {
    return is_encoder_layer(layer) ? encoder_->sizes : tokens();
  }
  /// Sizes of the sequence that embedding and head process; with an encoder, the decoder's.
  [[nodiscard]] const Sizes& tokens() const { return decoder_ ? decoder_->sizes : *own_; }
  /// Sizes of the encoder's sequence; null without an encoder.
  [[nodiscard]] const Sizes* encoder() const { return encoder_ ? &encoder_->sizes : nullptr; }
  [[nodiscard]] bool is_encoder_layer(std::int64_t layer) const {
    return encoder_ && layer < encoder_->run.model.encoder_num_layers;
  }
  /// Whether the layer has cross-attention.
  [[nodiscard]] bool has_cross_attention(std::int64_t layer) const {
    return encoder_ && !is_encoder_layer(layer);
  }
  /// Whether the layer is the encoder's last one, which ends with a norm.
  [[nodiscard]] bool ends_encoder(std::int64_t layer) const {
    return encoder_ && layer + 1 == encoder_->run.model.encoder_num_layers;
  }

  /// Bytes of the hidden states that blocks pass on, of both sequences.
  [[nodiscard]] std::int64_t hidden() const {
    return tokens().hidden + (encoder_ ? encoder_->sizes.hidden : 0);
  }
  /// Bytes of the other sequence's hidden states, which a layer only copies.
  [[nodiscard]] std::int64_t other_sequence_bytes(std::int64_t layer) const {
    return hidden() - of(layer).hidden;
  }

 private:
  struct Sequence {
    Sequence(const config::Run& of, std::int64_t length) : run(with_length(of, length)), sizes(run) {}
    config::Run run;
    Sizes sizes;
    static config::Run with_length(config::Run run, std::int64_t length) {
      run.training.seq_length = length;
      return run;
    }
  };
  [[nodiscard]] const config::Run& tokens_run() const { return decoder_ ? decoder_->run : *run_; }

  const config::Run* run_;
  std::unique_ptr<Sizes> own_;                   ///< without an encoder
  std::unique_ptr<Sequence> encoder_, decoder_;  ///< both, or none
};

inline Sequences::Sequences(const config::Run& run) : run_(&run) {
  if (!run.model.has_encoder()) {
    own_ = std::make_unique<Sizes>(run);
    return;
  }
  encoder_ = std::make_unique<Sequence>(run, run.training.seq_length);
  decoder_ = std::make_unique<Sequence>(run, run.training.decoder_seq_length);
}

}  // namespace colonnade::cost
