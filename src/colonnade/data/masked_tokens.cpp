// See masked_tokens.h.
#include "colonnade/data/masked_tokens.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "colonnade/data/split.h"

namespace colonnade::data {
namespace {

/// Words of a text: the positions of all tokens that may be masked, and where each word begins among them.
struct Words {
  std::vector<std::size_t> positions;
  std::vector<std::size_t> begins;

  [[nodiscard]] std::size_t size() const { return begins.size(); }
  /// Positions of up to `count` words from `first`.
  [[nodiscard]] std::span<const std::size_t> from(std::size_t first, std::size_t count) const {
    const std::size_t end = first + count < size() ? begins[first + count] : positions.size();
    return std::span(positions).subspan(begins[first], end - begins[first]);
  }
};

Words find_words(std::span<const std::int64_t> tokens, const MaskRules& rules) {
  const auto continues = [&rules](std::int64_t id) {
    return id >= 0 && id < static_cast<std::int64_t>(rules.continues.size()) &&
           rules.continues[static_cast<std::size_t>(id)];
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

/// Draws how many words a span shall have.
class SpanLengths {
 public:
  explicit SpanLengths(const MaskRules& rules)
      : rules_(rules), probabilities_(static_cast<std::size_t>(rules.max_words)) {
    for (std::size_t i = 0; i < probabilities_.size(); ++i)
      probabilities_[i] = 1.0 / static_cast<double>(i + 1);
    probabilities_ = normalize(normalize(probabilities_));  // twice, as Megatron: the last bits count
  }

  std::size_t next(RandomState& random) const {
    if (!rules_.geometric) return random.choice(probabilities_) + 1;
    return static_cast<std::size_t>(std::clamp<std::int64_t>(random.geometric(0.2), 1, rules_.max_words));
  }

 private:
  const MaskRules& rules_;
  std::vector<double> probabilities_;
};

/// Python's round(): halves to even.
double most_masked(std::size_t tokens, std::int64_t length, double probability) {
  return std::min(probability * static_cast<double>(length),
                  std::max(1.0, std::nearbyint(static_cast<double>(tokens) * probability)));
}

}  // namespace

std::vector<MaskedSpan> mask_spans(std::span<const std::int64_t> tokens, std::int64_t length,
                                   const MaskRules& rules, RandomState& random,
                                   const std::function<void(std::size_t)>& on_mask) {
  const Words words = find_words(tokens, rules);
  const double most = most_masked(tokens.size(), length, rules.probability);
  const SpanLengths lengths(rules);
  std::vector<std::size_t> order(words.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(std::span(order));
  std::vector<MaskedSpan> spans;
  std::vector<bool> masked(tokens.size(), false);
  std::size_t count = 0;
  for (const std::size_t first : order) {
    if (static_cast<double>(count) >= most) break;
    std::size_t n = lengths.next(random);
    std::span<const std::size_t> span = words.from(first, n);
    while (static_cast<double>(count + span.size()) > most && n > 0) span = words.from(first, --n);
    if (span.empty() || std::ranges::any_of(span, [&masked](std::size_t at) { return masked[at]; })) continue;
    for (const std::size_t at : span) {
      masked[at] = true;
      if (on_mask) on_mask(at);
    }
    count += span.size();
    spans.emplace_back(span.begin(), span.end());
  }
  std::ranges::sort(spans, {}, [](const MaskedSpan& span) { return span.front(); });
  return spans;
}

}  // namespace colonnade::data
