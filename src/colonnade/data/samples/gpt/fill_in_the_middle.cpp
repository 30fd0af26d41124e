// See fill_in_the_middle.h.
#include "colonnade/data/samples/gpt/fill_in_the_middle.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

using Ids = std::vector<std::int64_t>;

/// Byte offsets of the characters of UTF-8 text, and of its end.
std::vector<std::size_t> characters(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U) starts.push_back(i);
  starts.push_back(text.size());
  return starts;
}

class FimTransform {
 public:
  FimTransform(const FimRules& rules, const tokenizers::Tokenizer& tokenizer, RandomState& random)
      : rules_(rules), tokenizer_(tokenizer), random_(random) {}

  void document(std::span<const std::int64_t> ids, Ids& out) {
    if (rules_.split < 0 || std::ranges::find(ids, rules_.split) == ids.end())
      return fragment(ids, rules_.rate, out);
    if (!random_.bernoulli(rules_.rate)) {
      out.insert(out.end(), ids.begin(), ids.end());
      return;
    }
    split_at(ids, rules_.split, out,
             [this](auto part, Ids& to) { fragment(part, rules_.fragment_rate, to); });
  }

  /// Calls part(ids, out) for the ids before each `separator`, which is appended after them, and for the
  /// rest.
  template <typename Part>
  static void split_at(std::span<const std::int64_t> ids, std::int64_t separator, Ids& out,
                       const Part& part) {
    std::size_t start = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != separator) continue;
      if (i > start) {
        part(ids.subspan(start, i - start), out);
        out.push_back(separator);
      }
      start = i + 1;
    }
    part(ids.subspan(start), out);
  }

 private:
  void fragment(std::span<const std::int64_t> ids, double rate, Ids& out) {
    const auto keep = [&] { out.insert(out.end(), ids.begin(), ids.end()); };
    if (!random_.bernoulli(rate)) return keep();
    const std::string text = tokenizer_.decode_without_cleanup(Ids32(ids.begin(), ids.end()));
    if (!rules_.no_prefix.empty() && text.starts_with(rules_.no_prefix)) return keep();
    const std::vector<std::size_t> starts = characters(text);
    const auto draw = [&] { return static_cast<std::size_t>(random_.randint(0, std::ssize(starts))); };
    std::size_t first = draw(), second = draw();
    if (first > second) std::swap(first, second);
    const std::string_view all(text);
    const Ids32 prefix = encode(all.substr(0, starts[first]));
    const Ids32 middle = encode(all.substr(starts[first], starts[second] - starts[first]));
    const Ids32 suffix = encode(all.substr(starts[second]));
    const bool suffix_first = random_.bernoulli(rules_.spm_rate);
    const auto add = [&out](const Ids32& part) { out.insert(out.end(), part.begin(), part.end()); };
    out.push_back(rules_.prefix);
    if (!suffix_first) add(prefix);
    out.push_back(rules_.suffix);
    add(suffix);
    out.push_back(rules_.middle);
    if (suffix_first) add(prefix);
    add(middle);
  }

  using Ids32 = std::vector<std::int32_t>;
  [[nodiscard]] Ids32 encode(std::string_view text) const { return tokenizer_.encode_document(text); }

  const FimRules& rules_;
  const tokenizers::Tokenizer& tokenizer_;
  RandomState& random_;
};

}  // namespace

FimRules fim_rules(const config::FillInTheMiddle& settings, const tokenizers::Tokenizer& tokenizer) {
  FimRules rules{.rate = settings.rate,
                 .spm_rate = settings.spm_rate,
                 .fragment_rate = settings.fragment_rate.value_or(settings.rate),
                 .no_prefix = settings.no_prefix};
  std::vector<std::string> missing;
  const auto find = [&](const char* flag, const std::string& token, std::int64_t& id) {
    id = tokenizer.id_of(token);
    if (id < 0) missing.push_back(fmt::format("{} '{}'", flag, token));
  };
  find("--fim-prefix-token", settings.prefix_token, rules.prefix);
  find("--fim-middle-token", settings.middle_token, rules.middle);
  find("--fim-suffix-token", settings.suffix_token, rules.suffix);
  find("--fim-pad-token", settings.pad_token, rules.pad);
  find("--fim-eod-token", settings.eod_token, rules.eod);
  if (!settings.split_sample.empty()) find("--fim-split-sample", settings.split_sample, rules.split);
  if (!missing.empty())
    throw ConfigError(fmt::format(
        "--fim-data: its tokens must be in the tokenizer's vocabulary; got a tokenizer without {}; name tokens that "
        "it has",
        fmt::join(missing, ", ")));
  return rules;
}

std::vector<std::int64_t> fill_in_the_middle(std::span<const std::int64_t> sample, const FimRules& rules,
                                             const tokenizers::Tokenizer& tokenizer, RandomState& random) {
  FimTransform transform(rules, tokenizer, random);
  Ids out;
  FimTransform::split_at(sample, rules.eod, out,
                         [&transform](auto document, Ids& to) { transform.document(document, to); });
  out.resize(sample.size(), rules.pad);
  return out;
}

FimDataset::FimDataset(std::shared_ptr<const SampleSource> samples, FimRules rules,
                       std::shared_ptr<const tokenizers::Tokenizer> tokenizer, std::uint32_t seed)
    : samples_(std::move(samples)), rules_(std::move(rules)), tokenizer_(std::move(tokenizer)), seed_(seed) {}

void FimDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  constexpr std::int64_t kPadding = -1;
  samples_->tokens(number, kPadding, out);
  const auto filled = static_cast<std::size_t>(std::ranges::find(out, kPadding) - out.begin());
  RandomState random(seed_ + static_cast<std::uint32_t>(number));
  std::ranges::copy(fill_in_the_middle(out.first(filled), rules_, *tokenizer_, random), out.begin());
  std::ranges::fill(out.subspan(filled), pad);
}

}  // namespace colonnade::data
