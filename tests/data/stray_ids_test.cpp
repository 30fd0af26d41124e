// Ids outside of the vocabulary, found in some places before a run begins, with data set, document and place.
#include "colonnade/data/stray_ids.h"

#include <gmock/gmock.h>

#include <map>

#include "colonnade/base/error.h"
#include "colonnade/data/bert_batches.h"
#include "colonnade/data/gpt_batches.h"
#include "colonnade/data/t5_batches.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

/// Sequences of zeros with other tokens in some places, all of which it counts that were read.
class Zeros final : public TokenSource {
 public:
  Zeros(std::int64_t sequences, std::int64_t length, std::map<std::int64_t, std::int64_t> others)
      : sequences_(sequences), length_(length), others_(std::move(others)) {}
  [[nodiscard]] std::int64_t num_sequences() const override { return sequences_; }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return length_; }
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override {
    std::ranges::fill(out, 0);
    read_ += std::ssize(out);
    ++calls_;
    const std::int64_t first = sequence * length_ + offset, end = first + std::ssize(out);
    for (auto at = others_.lower_bound(first); at != others_.end() && at->first < end; ++at)
      out[static_cast<std::size_t>(at->first - first)] = at->second;
  }
  void announce(std::int64_t sequence, std::int64_t offset, std::int64_t) const override {
    announced_.emplace_back(sequence, offset);
  }
  [[nodiscard]] std::string name() const override { return "zeros"; }
  [[nodiscard]] std::size_t announced() const { return announced_.size(); }
  [[nodiscard]] std::int64_t read() const { return read_; }
  [[nodiscard]] std::int64_t calls() const { return calls_; }

 private:
  std::int64_t sequences_, length_;
  std::map<std::int64_t, std::int64_t> others_;
  mutable std::int64_t read_ = 0, calls_ = 0;
  mutable std::vector<std::pair<std::int64_t, std::int64_t>> announced_;
};

TEST(StrayIds, OfSmallDataAreFoundWhereverTheyAre) {
  for (const std::int64_t at : {0, 5, 777, 29'999}) {
    const Zeros zeros(3'000, 10, {{at, 100}});
    const auto stray = find_stray_id(zeros, {0, 3'000}, 100);
    ASSERT_TRUE(stray) << at;
    EXPECT_EQ(stray->id, 100);
    EXPECT_EQ(stray->document, at / 10);
    EXPECT_EQ(stray->place, at % 10);
  }
  EXPECT_FALSE(find_stray_id(Zeros(3'000, 10, {{7, 99}}), {0, 3'000}, 100)) << "the last id";
  EXPECT_TRUE(find_stray_id(Zeros(3'000, 10, {{7, -1}}), {0, 3'000}, 100)) << "below the first one";
  EXPECT_FALSE(find_stray_id(Zeros(3'000, 10, {{7, 100}}), {1, 3'000}, 100)) << "not in the part";
  EXPECT_FALSE(find_stray_id(Zeros(3, 10, {{7, 100}}), {2, 2}, 100)) << "nothing";
}

/// 64 stretches of 2 % of them cover more than the gaps between places.
TEST(StrayIds, OfLargeDataAreFoundInSpreadPlaces) {
  const auto found = [](std::int64_t sequences, std::int64_t length, std::int64_t first) {
    std::map<std::int64_t, std::int64_t> others;
    const std::int64_t all = sequences * length;
    for (std::int64_t i = first; i < first + all / 50 && i < all; ++i) others[i] = 100;
    return find_stray_id(Zeros(sequences, length, std::move(others)), {0, sequences}, 100).has_value();
  };
  for (const auto& [sequences, length] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1'000'000}, {2, 500'000}, {1'000, 1'000}, {100'000, 10}})
    for (std::int64_t part = 0; part < 50; ++part)
      EXPECT_TRUE(found(sequences, length, part * sequences * length / 50)) << sequences << ", part " << part;
}

TEST(StrayIds, TheFirstAndTheLastTokensAreLookedAt) {
  for (const std::int64_t sequences : {1, 7, 1'000}) {
    EXPECT_TRUE(find_stray_id(Zeros(sequences, 100'000, {{0, 9}}), {0, sequences}, 9)) << sequences;
    EXPECT_TRUE(find_stray_id(Zeros(sequences, 100'000, {{sequences * 100'000 - 1, 9}}), {0, sequences}, 9))
        << sequences;
  }
}

TEST(StrayIds, LittleIsReadWhateverTheSize) {
  const Zeros texts(1'000'000, 100'000, {}), words(2'000'000'000, 1, {}), empty(2'000'000'000, 0, {});
  for (const Zeros* zeros : {&texts, &words, &empty}) {
    EXPECT_FALSE(find_stray_id(*zeros, {0, zeros->num_sequences()}, 9));
    EXPECT_LE(zeros->read(), 64 * 1024);
    EXPECT_LE(zeros->calls(), 64 * 256);
  }
  EXPECT_EQ(texts.read(), 64 * 1024);
  EXPECT_EQ(texts.announced(), 64U) << "the disk is asked for all of them at once";
}

TEST(StrayIds, AnyPlaceOfADataSetCanBeAnnounced) {
  const IndexedDataset set(vector_path("indexed/gpt_uint16"));
  for (std::int64_t i = 0; i < set.num_sequences(); ++i)
    for (const std::int64_t offset : {std::int64_t{0}, set.length(i)}) set.announce(i, offset, 1 << 30);
  EXPECT_FALSE(find_stray_id(set, {0, set.num_sequences()}, 1152));
}

TEST(StrayIds, ArePlacedInTheirDocument) {
  const Sentences sentences({{3, 2}, {}, {4, 1, 5}, {2}});  // tokens 10 to 26
  const auto stray = find_stray_id(sentences, {0, 6}, 21);
  ASSERT_TRUE(stray);
  EXPECT_EQ(stray->id, 21);
  EXPECT_EQ(stray->document, 2) << "behind an empty one";
  EXPECT_EQ(stray->place, 6);
}

class VocabularyFault : public SentenceBatchesTest {
 protected:
  VocabularyFault() {
    training_.train_iters = 10;
    training_.eval_iters = 0;
  }
  [[nodiscard]] Splits open() const override { return {}; }
};

TEST_F(VocabularyFault, NamesSetPlaceAndWayOutOfAGpt) {
  data_.data_path = {vector_path("indexed/gpt_uint16")};
  data_.split = "1,0,0";
  const auto fault = [&](std::int64_t vocab_size) {
    return vocabulary_fault(open_gpt_batches(data_, training_, {.vocab_size = vocab_size, .eod = 0}));
  };
  const std::string set = vector_path("indexed/gpt_uint16");
  EXPECT_THAT(
      fault(1000),
      AllOf(HasSubstr(set + ": token ids must be below the vocabulary size 1000; got "),
            HasSubstr(" in document "), HasSubstr("another tokenizer"), HasSubstr("--vocab-size"),
            HasSubstr("`colonnade data inspect " + set + " --check-tokens --vocab-size 1000` counts them")));
  EXPECT_THAT(fault(1152), IsEmpty());
  EXPECT_THAT(fault(0), IsEmpty()) << "not checked";
  data_.data_path.push_back(vector_path("indexed/gpt2_uint16"));
  EXPECT_THAT(fault(1000), HasSubstr("; 1 more data sets have such ids"));
  EXPECT_THAT(fault(1152), IsEmpty());
}

TEST_F(VocabularyFault, NumbersOfABertOrAT5AreNoSpecialIds) {
  std::int64_t highest = 0;
  const IndexedDataset set(data_.data_path[0]);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < set.num_sequences(); ++i) {
    ids.resize(static_cast<std::size_t>(set.length(i)));
    set.tokens(i, 0, ids);
    for (const std::int64_t id : ids) highest = std::max(highest, id);
  }
  const auto bert = [&](std::int64_t vocab_size) {
    return vocabulary_fault(open_bert_batches(data_, training_, bert_ids(nullptr, vocab_size), true));
  };
  EXPECT_THAT(bert(highest + 5), IsEmpty());
  EXPECT_THAT(bert(highest + 4), AllOf(HasSubstr("text of numbers must be below " + std::to_string(highest)),
                                       HasSubstr("got " + std::to_string(highest) + " in document "),
                                       HasSubstr("raise --vocab-size")));
  training_.decoder_seq_length = 64;
  const auto t5 = [&](std::int64_t vocab_size) {
    return vocabulary_fault(open_t5_batches(data_, training_, t5_ids(nullptr, vocab_size, 10)));
  };
  EXPECT_THAT(t5(highest + 11), IsEmpty());
  EXPECT_THAT(t5(highest + 10), HasSubstr("text of numbers must be below " + std::to_string(highest)));
}

}  // namespace
}  // namespace colonnade::data
