// The sequences of a micro-batch: of a GPT one, of an encoder and its decoder two, which the blocks hand on
// side by side. Formulas of layers are written for one sequence; here each layer finds its own.
#pragma once

#include <memory>

#include "colonnade/cost/activations/sizes.h"

namespace colonnade::cost {

class Sequences {
 public:
  /// `run` outlives it.
  explicit Sequences(const config::Run& run);

  /// The settings as a layer sees them, with its own sequence's length.
  [[nodiscard]] const config::Run& run(std::int64_t layer) const {
    return of_encoder(layer) ? encoder_->run : tokens_run();
  }
  [[nodiscard]] const Sizes& of(std::int64_t layer) const {
    return of_encoder(layer) ? encoder_->sizes : tokens();
  }
  /// Of the tokens that embedding and head see; of the decoder, where there is an encoder.
  [[nodiscard]] const Sizes& tokens() const { return decoder_ ? decoder_->sizes : *own_; }
  /// Of those that the encoder reads; null: there is none.
  [[nodiscard]] const Sizes* encoder() const { return encoder_ ? &encoder_->sizes : nullptr; }
  [[nodiscard]] bool of_encoder(std::int64_t layer) const {
    return encoder_ && layer < encoder_->run.model.encoder_num_layers;
  }
  /// Whether the layer attends to the encoder too.
  [[nodiscard]] bool crosses(std::int64_t layer) const { return encoder_ && !of_encoder(layer); }
  /// The encoder's last layer ends with a norm.
  [[nodiscard]] bool ends_encoder(std::int64_t layer) const {
    return encoder_ && layer + 1 == encoder_->run.model.encoder_num_layers;
  }

  /// Bytes of what blocks hand on.
  [[nodiscard]] std::int64_t hidden() const {
    return tokens().hidden + (encoder_ ? encoder_->sizes.hidden : 0);
  }
  /// Bytes of the rows of it that a layer copies and leaves alone.
  [[nodiscard]] std::int64_t beside(std::int64_t layer) const { return hidden() - of(layer).hidden; }

 private:
  struct One {
    One(const config::Run& of, std::int64_t length) : run(with_length(of, length)), sizes(run) {}
    config::Run run;
    Sizes sizes;
    static config::Run with_length(config::Run run, std::int64_t length) {
      run.training.seq_length = length;
      return run;
    }
  };
  [[nodiscard]] const config::Run& tokens_run() const { return decoder_ ? decoder_->run : *run_; }

  const config::Run* run_;
  std::unique_ptr<Sizes> own_;              ///< without an encoder
  std::unique_ptr<One> encoder_, decoder_;  ///< both, or none
};

inline Sequences::Sequences(const config::Run& run) : run_(&run) {
  if (!run.model.has_encoder()) {
    own_ = std::make_unique<Sizes>(run);
    return;
  }
  encoder_ = std::make_unique<One>(run, run.training.seq_length);
  decoder_ = std::make_unique<One>(run, run.training.decoder_seq_length);
}

}  // namespace colonnade::cost
