// The most probable cut of a text into the pieces of a SentencePiece unigram model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/best_cut.h"

namespace colonnade::tokenizers {

/// Adds the scores of pieces from left to right in float32 and takes the first of equally good cuts, as
/// SentencePiece from 0.2 on does; release 0.1.97 (Debian 12) compares a float64 with a float32 sum and so
/// chooses by rounding where two cuts are equally good. A user-defined piece counts bytes * best score
/// - 0.1.
class Unigram {
 public:
  /// Reads the bytes of a .model file. Nothing when the model is of another kind.
  static std::optional<Unigram> read(std::string_view model);

  /// Ids of normalized text (spaces are U+2581). Characters that no piece covers become the bytes of the
  /// model, when it has them, else one unknown id for each run of them.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view normalized) const;

  /// The normalized text behind `pieces` of an encoding, bytes written as "<0xE2>" among them.
  [[nodiscard]] std::string join(const std::vector<std::string>& pieces) const;

 private:
  struct Piece {
    std::string text;
    float score = 0;
    std::int32_t id = 0;
    bool user_defined = false;
  };
  std::size_t extend(std::string_view text, float score, BestCut<float>& cut) const;
  void add(std::string_view piece_message, std::int32_t id);
  void finish();

  std::vector<Piece> pieces_;  ///< by text
  std::array<std::int32_t, 256> bytes_{};
  bool falls_back_ = false;  ///< to bytes
  std::int32_t unknown_ = 0;
  float unknown_score_ = 0;
};

}  // namespace colonnade::tokenizers
