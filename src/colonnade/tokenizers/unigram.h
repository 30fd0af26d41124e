// Tokenization with SentencePiece unigram models.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/tokenizers/viterbi.h"

namespace colonnade::tokenizers {

/// Sums the scores of pieces from left to right in float32; the first segmentation wins ties, as in
/// SentencePiece 0.2 and later. Release 0.1.97 (Debian 12) compares a float64 with a float32 sum, so rounding
/// decides ties there. The score of a user-defined piece is bytes * best score - 0.1.
class SentencePieceUnigram {
 public:
  /// Reads the bytes of a .model file; nullopt if it is not a unigram model.
  static std::optional<SentencePieceUnigram> read(std::string_view model);

  /// Ids of normalized text (spaces are U+2581). Characters without a piece become byte pieces with
  /// byte_fallback, else one unknown id for each run of them.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view normalized) const;

  /// The normalized text of the `pieces` of an encoding, which may contain byte pieces such as "<0xE2>".
  [[nodiscard]] std::string join(const std::vector<std::string>& pieces) const;

 private:
  struct Piece {
    std::string text;
    float score = 0;
    std::int32_t id = 0;
    bool user_defined = false;
  };
  std::size_t extend(std::string_view text, float score, ViterbiSegmenter<float>& segmenter) const;
  void add(std::string_view piece_message, std::int32_t id);
  void finalize_scores();

  std::vector<Piece> pieces_;  ///< sorted by text
  std::array<std::int32_t, 256> bytes_{};
  bool byte_fallback_ = false;
  std::int32_t unknown_ = 0;
  float unknown_score_ = 0;
};

}  // namespace colonnade::tokenizers
