// The settings of fill-in-the-middle: documents cut in three, the middle moved to the end.
#pragma once

#include <optional>
#include <string>

namespace colonnade::config {

/// Without it (enabled false) nothing else of it counts. The five tokens are looked up in the tokenizer.
struct FillInTheMiddle {
  bool enabled = false;                 ///< --fim-data
  double rate = 0.5;                    ///< --fim-rate: share of the pieces that are cut in three
  double spm_rate = 0.5;                ///< --fim-spm-rate: share of those that begin with the suffix
  std::string split_sample;             ///< --fim-split-sample: a token; pieces between two of it are cut
  std::optional<double> fragment_rate;  ///< --fim-fragment-rate: share of such pieces; unset: rate
  std::string no_prefix;                ///< --fim-no-prefix: pieces that begin with this text are left alone
  std::string prefix_token = "<fim_prefix>";  ///< --fim-prefix-token
  std::string middle_token = "<fim_middle>";  ///< --fim-middle-token
  std::string suffix_token = "<fim_suffix>";  ///< --fim-suffix-token
  std::string pad_token = "<fim_pad>";        ///< --fim-pad-token
  std::string eod_token = "<|endoftext|>";    ///< --fim-eod-token

  friend bool operator==(const FillInTheMiddle&, const FillInTheMiddle&) = default;
};

}  // namespace colonnade::config
