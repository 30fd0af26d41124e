// See sft_dataset.h.
#include "colonnade/data/samples/sft/sft_dataset.h"

#include <algorithm>
#include <array>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/index_memory.h"
#include "colonnade/data/numpy_random.h"
#include "colonnade/data/samples/sft/sft_conversations.h"

namespace colonnade::data {
namespace {

constexpr std::size_t kOpen = 32;  // newest samples, which may still receive a conversation

/// A conversation with an answer, and the number of its tokens that fit a sample.
struct Usable {
  std::int64_t number, length;
};

bool has_answer(const TokenSource& source, std::int64_t number, std::int64_t length) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(length));
  source.tokens(number, 0, tokens);
  return std::any_of(tokens.begin() + (length > 0 ? 1 : 0), tokens.end(),
                     [](std::int64_t token) { return (token & kAnswerToken) != 0; });
}

std::vector<Usable> usable(const TokenSource& source, const SftPlan& plan) {
  std::vector<Usable> all;
  std::int64_t cut = 0, tokens_cut = 0;
  for (std::int64_t i = plan.conversations.begin; i < plan.conversations.end; ++i) {
    const std::int64_t length = std::min(source.length(i), plan.seq_length + 1);
    if (length < source.length(i)) {
      ++cut;
      tokens_cut += source.length(i) - length;
    }
    if (has_answer(source, i, length)) all.push_back({i, length});
  }
  const auto left_out = plan.conversations.size() - static_cast<std::int64_t>(all.size());
  if (all.empty())
    throw DataError(fmt::format(
        "{}: the data must hold a conversation with an answer within {} tokens; got none in {}; raise --seq-length",
        source.name(), plan.seq_length + 1, plan.conversations.size()));
  if (cut > 0)
    log::warning(
        "{}: {} of {} conversations exceed {} tokens and lose {} tokens by truncation; raise --seq-length to keep them",
        source.name(), cut, plan.conversations.size(), plan.seq_length + 1, tokens_cut);
  if (left_out > 0)
    log::warning("{}: {} of {} conversations have no answer within {} tokens and are left out", source.name(),
                 left_out, plan.conversations.size(), plan.seq_length + 1);
  return all;
}

/// Memory of a sample with one conversation: its list and free space, its number, and both again in the
/// index.
constexpr std::int64_t kBytesOfSample = 24 + 8 + 32 + 8 + 8, kBytesOfConversation = 8 + 8;

/// Checks a lower bound of the memory before packing: each sample has a conversation, and one epoch has all.
void require_packing_memory(const TokenSource& source, const SftPlan& plan,
                            const std::vector<Usable>& conversations) {
  double tokens = 0;
  for (const Usable& each : conversations) tokens += static_cast<double>(each.length);
  const auto count = static_cast<double>(conversations.size()),
             capacity = static_cast<double>(plan.seq_length + 1);
  const double fewest = plan.packed ? tokens / capacity : count;  // samples of one epoch
  const double samples = std::max(static_cast<double>(plan.num_samples.value_or(0)), fewest);
  const double read = std::max(samples, count);
  require_index_memory(source.name(), fmt::format("{:.0f} samples", samples),
                       kBytesOfSample * samples + kBytesOfConversation * (read - samples));
}

/// Packs conversations into samples: the conversations of each sample, in the order of their first
/// conversation.
class Packer {
 public:
  explicit Packer(std::int64_t capacity) : capacity_(capacity) {}

  void add(const Usable& conversation, bool packed) {
    std::size_t best = samples_.size();
    for (std::size_t i = samples_.size() - std::min(samples_.size() - first_, kOpen);
         packed && i < samples_.size(); ++i)
      if (used_[i] + conversation.length <= capacity_ && (best == samples_.size() || used_[i] > used_[best]))
        best = i;
    if (best == samples_.size()) {
      samples_.emplace_back();
      used_.push_back(0);
    }
    samples_[best].push_back(conversation.number);
    used_[best] += conversation.length;
  }
  /// Closes all samples begun so far.
  void close() { first_ = samples_.size(); }

  [[nodiscard]] const std::vector<std::vector<std::int64_t>>& samples() const { return samples_; }

 private:
  std::int64_t capacity_;
  std::vector<std::vector<std::int64_t>> samples_;
  std::vector<std::int64_t> used_;
  std::size_t first_ = 0;
};

std::string describe(const SftPlan& plan, const std::string& fingerprint) {
  return fmt::format(
      "SFT indices, version 1\n{}\nconversations {} to {}\nsequence length {}\n{}\nsamples {}\nseed {}\n",
      fingerprint, plan.conversations.begin, plan.conversations.end, plan.seq_length,
      plan.packed ? "packed" : "one each",
      plan.num_samples ? fmt::format("{}", *plan.num_samples) : "one epoch", plan.seed);
}

}  // namespace

bool has_usable_conversation(const TokenSource& source, const SftPlan& plan) {
  for (std::int64_t i = plan.conversations.begin; i < plan.conversations.end; ++i)
    if (has_answer(source, i, std::min(source.length(i), plan.seq_length + 1))) return true;
  return false;
}

SftDataset::SftDataset(std::shared_ptr<const TokenSource> source, const SftPlan& plan,
                       const IndexCache& cache, const std::string& fingerprint)
    : source_(std::move(source)), plan_(plan) {
  const auto arrays =
      cache.get(fmt::format("{} (samples of {} tokens)", source_->name(), plan.seq_length),
                {.kind = "chats", .description = describe(plan, fingerprint)}, {"members", "starts"}, [this] {
                  const SftIndex built = build();
                  return std::vector<IntArray>{built.members, built.starts};
                });
  index_ = {arrays[0], arrays[1]};
  if (index_.starts.rows() < 1 || index_.starts[index_.starts.rows() - 1] != index_.members.rows())
    throw DataError(
        fmt::format("{}: index caches must fit each other; got {} conversations; delete the cache",
                    source_->name(), index_.members.rows()));
  for (std::int64_t i = 0; i < index_.members.rows(); ++i)
    num_epochs_ += index_.members[i] == index_.members[0] ? 1 : 0;
}

SftIndex SftDataset::build() const {
  std::vector<Usable> conversations = usable(*source_, plan_);
  require_packing_memory(*source_, plan_, conversations);
  RandomState random(plan_.seed);
  Packer packer(plan_.seq_length + 1);
  do {
    std::vector<Usable> order = conversations;
    random.shuffle(std::span(order));
    for (const Usable& each : order) packer.add(each, plan_.packed);
    packer.close();
  } while (static_cast<std::int64_t>(packer.samples().size()) < plan_.num_samples.value_or(0));
  std::vector<std::int64_t> members, starts{0};
  for (const auto& sample : packer.samples()) {
    members.insert(members.end(), sample.begin(), sample.end());
    starts.push_back(static_cast<std::int64_t>(members.size()));
  }
  return {IntArray(std::move(members)), IntArray(std::move(starts))};
}

std::vector<SampleOrder> SftDataset::orders() const {
  std::int64_t tokens = 0;
  for (std::int64_t i = plan_.conversations.begin; i < plan_.conversations.end; ++i)
    tokens += source_->length(i);
  // Later epochs do not change earlier samples: a run that requests more continues in the same order.
  return {{.name = name(),
           .tokens = tokens,
           .passes = 1,
           .separate_final_epoch = false,
           .asked = plan_.num_samples,
           .sequences = plan_.conversations,
           .num_epochs = num_epochs_}};
}

std::vector<SampleSpan> SftDataset::spans(std::int64_t number) const {
  check_number(number);
  const std::int64_t capacity = plan_.seq_length + 1;
  std::vector<SampleSpan> pieces;
  std::int64_t filled = 0;
  for (std::int64_t i = index_.starts[number]; i < index_.starts[number + 1]; ++i) {
    const std::int64_t conversation = index_.members[i];
    if (conversation < plan_.conversations.begin || conversation >= plan_.conversations.end ||
        filled >= capacity)
      throw DataError(
          fmt::format("{}: the index cache must fit the data; got sample {} outside of it; delete the cache",
                      source_->name(), number));
    const std::int64_t all = source_->length(conversation);
    const std::int64_t length = std::min(all, capacity - filled);
    filled += length;
    // The last token of a full row is only a label.
    pieces.push_back({.sequence = conversation,
                      .sequence_length = all,
                      .length = length,
                      .labels = filled == capacity ? 1 : 0});
  }
  return pieces;
}

void SftDataset::read(const SampleSpan& piece, std::span<std::int64_t> out) const {
  source_->tokens(piece.sequence, piece.offset, out);
  for (std::int64_t& token : out) token = id_of(token);
}

void SftDataset::tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const {
  std::size_t filled = 0;
  for (const SampleSpan& piece : spans(number)) {
    const auto length = static_cast<std::size_t>(piece.length);
    source_->tokens(piece.sequence, 0, out.subspan(filled, length));
    filled += length;
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(filled), out.end(), pad);
}

}  // namespace colonnade::data
