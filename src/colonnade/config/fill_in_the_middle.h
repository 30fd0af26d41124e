// Settings of fill-in-the-middle (FIM): documents are split in three and the middle is moved to the end.
#pragma once

#include <optional>
#include <string>

namespace colonnade::config {

/// Ignored unless `enabled`. The five tokens are looked up in the tokenizer.
struct FillInTheMiddle {
  bool enabled = false;      ///< --fim-data
  double rate = 0.5;         ///< --fim-rate: fraction of documents (or fragments) that are split
  double spm_rate = 0.5;     ///< --fim-spm-rate: fraction of those in suffix-prefix-middle order
  std::string split_sample;  ///< --fim-split-sample: token that separates fragments, each split on its own
  std::optional<double>
      fragment_rate;      ///< --fim-fragment-rate: fraction of fragments that are split; unset: rate
  std::string no_prefix;  ///< --fim-no-prefix: documents with this prefix are not split
  std::string prefix_token = "<fim_prefix>";  ///< --fim-prefix-token
  std::string middle_token = "<fim_middle>";  ///< --fim-middle-token
  std::string suffix_token = "<fim_suffix>";  ///< --fim-suffix-token
  std::string pad_token = "<fim_pad>";        ///< --fim-pad-token
  std::string eod_token = "<|endoftext|>";    ///< --fim-eod-token

  friend bool operator==(const FillInTheMiddle&, const FillInTheMiddle&) = default;
};

}  // namespace colonnade::config
