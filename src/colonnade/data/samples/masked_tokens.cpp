// See masked_tokens.h.
#include "colonnade/data/samples/masked_tokens.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "colonnade/data/split.h"

namespace colonnade::data {
namespace {

/// Words of a text: positions of all maskable tokens, and where each word begins among them.
struct Words {
  std::vector<std::size_t> positions;
  std::vector<std::size_t> begins;

  [[nodiscard]] std::size_t size() const { return begins.size(); }
  /// Positions of up to `count` words starting with `first`.
  [[nodiscard]] std::span<const std::size_t> from(std::size_t first, std::size_t count) const {
    const std::size_t end = first + count < size() ? begins[first + count] : positions.size();
    return std::span(positions).subspan(begins[first], end - begins[first]);
  }
};

Words find_words(std::span<const std::int64_t> tokens, const MaskRules& rules) {
  const auto continues = [&rules](std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(rules.continues_word.size()) &&
           rules.continues_word[static_cast<std::size_t>(id)];
  };
  Words words;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == rules.cls || tokens[i] == rules.sep) continue;
    if (!rules.whole_words || words.begins.empty() || !continues(tokens[i]))
      words.begins.push_back(words.positions.size());
    words.positions.push_back(i);
  }
  return words;
}

/// Draws the number of words of a span.
class SpanLengths {
 public:
  explicit SpanLengths(const MaskRules& rules)
      : rules_(rules), probabilities_(static_cast<std::size_t>(rules.max_words)) {
    for (std::size_t i = 0; i < probabilities_.size(); ++i)
      probabilities_[i] = 1.0 / static_cast<double>(i + 1);
    probabilities_ = normalize(probabilities_);
    if (rules.favors_longer) std::ranges::reverse(probabilities_);
    probabilities_ = normalize(probabilities_);  // twice, as in Megatron, for identical last bits
  }

  std::size_t next(RandomState& random) const {
    return rules_.geometric ? static_cast<std::size_t>(
                                  std::clamp<std::int64_t>(random.geometric(0.2), 1, rules_.max_words))
                            : by_probability(random);
  }
  std::size_t by_probability(RandomState& random) const { return random.choice(probabilities_) + 1; }

 private:
  const MaskRules& rules_;
  std::vector<double> probabilities_;
};

/// Selects non-overlapping spans of words with at most `max_tokens` tokens in total.
class SpanSelector {
 public:
  SpanSelector(const Words& words, std::size_t tokens, double max_tokens)
      : words_(words), max_tokens_(max_tokens), selected_(tokens, false) {}

  /// Tries a span of next_length() words at each word of `order`; calls on_token(position) per selected
  /// token.
  template <typename NextLength, typename OnToken>
  std::vector<MaskedSpan> select(std::span<const std::size_t> order, const NextLength& next_length,
                                 const OnToken& on_token) {
    std::vector<MaskedSpan> spans;
    std::size_t count = 0;
    for (const std::size_t first : order) {
      if (static_cast<double>(count) >= max_tokens_) break;
      std::size_t n = next_length();
      std::span<const std::size_t> span = words_.from(first, n);
      while (static_cast<double>(count + span.size()) > max_tokens_ && n > 0) span = words_.from(first, --n);
      if (span.empty() || std::ranges::any_of(span, [this](std::size_t at) { return selected_[at]; }))
        continue;
      for (const std::size_t at : span) {
        selected_[at] = true;
        on_token(at);
      }
      count += span.size();
      spans.emplace_back(span.begin(), span.end());
    }
    return spans;
  }

 private:
  const Words& words_;
  double max_tokens_;
  std::vector<bool> selected_;
};

/// Upper bound of masked tokens; std::nearbyint rounds halves to even like Python's round().
double max_masked_tokens(std::size_t tokens, std::int64_t length, double probability) {
  return std::min(probability * static_cast<double>(length),
                  std::max(1.0, std::nearbyint(static_cast<double>(tokens) * probability)));
}

std::vector<PermutedToken> shuffled(const std::vector<MaskedSpan>& spans, RandomState& random) {
  std::vector<std::size_t> to;
  for (const MaskedSpan& span : spans) to.insert(to.end(), span.begin(), span.end());
  std::ranges::sort(to);
  std::vector<std::size_t> from = to;
  random.shuffle(std::span(from));
  std::vector<PermutedToken> permutations;
  for (std::size_t i = 0; i < to.size(); ++i) permutations.push_back({to[i], from[i]});
  return permutations;
}

}  // namespace

Masking mask_spans(std::span<const std::int64_t> tokens, std::int64_t length, const MaskRules& rules,
                   RandomState& random, const std::function<void(std::size_t)>& on_mask,
                   RandomState* permuted_lengths) {
  const Words words = find_words(tokens, rules);
  const SpanLengths lengths(rules);
  SpanSelector selector(words, tokens.size(), max_masked_tokens(tokens.size(), length, rules.probability));
  std::vector<std::size_t> order(words.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(std::span(order));
  Masking masking;
  masking.spans = selector.select(
      order, [&] { return lengths.next(random); },
      [&on_mask](std::size_t at) {
        if (on_mask) on_mask(at);
      });
  std::ranges::sort(masking.spans, {}, [](const MaskedSpan& span) { return span.front(); });
  if (permuted_lengths == nullptr) return masking;
  random.shuffle(std::span(order));
  const auto permuted = selector.select(
      order, [&] { return lengths.by_probability(*permuted_lengths); }, [](std::size_t) {});
  masking.permutations = shuffled(permuted, random);
  return masking;
}

}  // namespace colonnade::data
