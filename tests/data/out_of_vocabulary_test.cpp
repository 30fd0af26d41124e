// Ids outside the vocabulary, found at some positions before a run, with data set, document and position.
#include "colonnade/data/out_of_vocabulary.h"

#include <gmock/gmock.h>

#include <map>

#include "colonnade/base/error.h"
#include "colonnade/data/samples/bert/bert_batches.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/data/samples/t5/t5_batches.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Sequences of zeros with other tokens at some positions; counts the tokens that are read.
class Zeros final : public TokenSource {
 public:
  Zeros(std::int64_t sequences, std::int64_t length, std::map<std::int64_t, std::int64_t> others,
        std::string name = "zeros")
      : sequences_(sequences), length_(length), others_(std::move(others)), name_(std::move(name)) {}
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
  void prefetch(std::int64_t sequence, std::int64_t offset, std::int64_t) const override {
    prefetched_.emplace_back(sequence, offset);
  }
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::size_t prefetched() const { return prefetched_.size(); }
  [[nodiscard]] std::int64_t read() const { return read_; }
  [[nodiscard]] std::int64_t calls() const { return calls_; }

 private:
  std::int64_t sequences_, length_;
  std::map<std::int64_t, std::int64_t> others_;
  std::string name_;
  mutable std::int64_t read_ = 0, calls_ = 0;
  mutable std::vector<std::pair<std::int64_t, std::int64_t>> prefetched_;
};

TEST(OutOfVocabularyIds, AreFoundAnywhereInSmallData) {
  for (const std::int64_t at : {0, 5, 777, 29'999}) {
    const Zeros zeros(3'000, 10, {{at, 100}});
    const auto stray = find_out_of_vocabulary_id(zeros, {0, 3'000}, 100);
    ASSERT_TRUE(stray) << at;
    EXPECT_EQ(stray->id, 100);
    EXPECT_EQ(stray->document, at / 10);
    EXPECT_EQ(stray->position, at % 10);
  }
  EXPECT_FALSE(find_out_of_vocabulary_id(Zeros(3'000, 10, {{7, 99}}), {0, 3'000}, 100)) << "the last id";
  EXPECT_TRUE(find_out_of_vocabulary_id(Zeros(3'000, 10, {{7, -1}}), {0, 3'000}, 100))
      << "below the first one";
  EXPECT_FALSE(find_out_of_vocabulary_id(Zeros(3'000, 10, {{7, 100}}), {1, 3'000}, 100))
      << "outside the range";
  EXPECT_FALSE(find_out_of_vocabulary_id(Zeros(3, 10, {{7, 100}}), {2, 2}, 100)) << "empty range";
}

/// The 2 % of wrong tokens are wider than the gaps between the 64 probes.
TEST(OutOfVocabularyIds, AreFoundByTheProbesOfLargeData) {
  const auto found = [](std::int64_t sequences, std::int64_t length, std::int64_t first) {
    std::map<std::int64_t, std::int64_t> others;
    const std::int64_t all = sequences * length;
    for (std::int64_t i = first; i < first + all / 50 && i < all; ++i) others[i] = 100;
    return find_out_of_vocabulary_id(Zeros(sequences, length, std::move(others)), {0, sequences}, 100)
        .has_value();
  };
  for (const auto& [sequences, length] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1'000'000}, {2, 500'000}, {1'000, 1'000}, {100'000, 10}})
    for (std::int64_t part = 0; part < 50; ++part)
      EXPECT_TRUE(found(sequences, length, part * sequences * length / 50)) << sequences << ", part " << part;
}

TEST(OutOfVocabularyIds, ProbesIncludeTheFirstAndTheLastToken) {
  for (const std::int64_t sequences : {1, 7, 1'000}) {
    EXPECT_TRUE(find_out_of_vocabulary_id(Zeros(sequences, 100'000, {{0, 9}}), {0, sequences}, 9))
        << sequences;
    EXPECT_TRUE(find_out_of_vocabulary_id(Zeros(sequences, 100'000, {{sequences * 100'000 - 1, 9}}),
                                          {0, sequences}, 9))
        << sequences;
  }
}

TEST(OutOfVocabularyIds, ProbesReadLittleWhateverTheSize) {
  const Zeros texts(1'000'000, 100'000, {}), words(2'000'000'000, 1, {}), empty(2'000'000'000, 0, {});
  for (const Zeros* zeros : {&texts, &words, &empty}) {
    EXPECT_FALSE(find_out_of_vocabulary_id(*zeros, {0, zeros->num_sequences()}, 9));
    EXPECT_LE(zeros->read(), 64 * 1024);
    EXPECT_LE(zeros->calls(), 64 * 256);
  }
  EXPECT_EQ(texts.read(), 64 * 1024);
  EXPECT_EQ(texts.prefetched(), 64U) << "all positions are prefetched together";
}

/// Samples of ranges of data sets; a range may occur twice.
class Parts final : public SampleSource {
 public:
  explicit Parts(std::vector<std::pair<const TokenSource*, Range>> parts) : parts_(std::move(parts)) {}
  [[nodiscard]] std::int64_t size() const override { return 1; }
  void tokens(std::int64_t, std::int64_t, std::span<std::int64_t>) const override {}
  [[nodiscard]] std::string name() const override { return "parts"; }
  [[nodiscard]] std::vector<SampleOrder> orders() const override { return {}; }
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t) const override { return {}; }
  void read(const SampleSpan&, std::span<std::int64_t>) const override {}
  void for_each_source(const SourceVisitor& visit) const override {
    for (const auto& [source, part] : parts_) visit(*source, part);
  }

 private:
  std::vector<std::pair<const TokenSource*, Range>> parts_;
};

Splits of_parts(const std::vector<std::vector<std::pair<const TokenSource*, Range>>>& parts,
                std::int64_t vocab_size) {
  Splits splits;
  for (std::size_t i = 0; i < parts.size(); ++i)
    splits[i] = std::make_unique<GptBatches>(std::make_shared<Parts>(parts[i]),
                                             GptBatches::Plan{.vocab_size = vocab_size});
  return splits;
}

TEST(OutOfVocabularyIds, EachRangeIsProbedOnce) {
  const Zeros a(1'000, 100'000, {}, "a"), b(1'000, 100'000, {}, "b");
  const Range first{0, 900}, last{900, 1'000};
  EXPECT_THAT(
      vocabulary_error(of_parts({{{&a, first}, {&a, first}, {&b, first}}, {{&a, last}}, {{&a, last}}}, 9)),
      IsEmpty());
  EXPECT_EQ(a.read(), 2 * 64 * 1024) << "two ranges";
  EXPECT_EQ(b.read(), 64 * 1024);
}

TEST(OutOfVocabularyIds, AllProbesOfAllDatasetsArePrefetchedBeforeTheFirstRead) {
  struct Prefetched final : TokenSource {
    [[nodiscard]] std::int64_t num_sequences() const override { return 1; }
    [[nodiscard]] std::int64_t length(std::int64_t) const override { return 1'000'000; }
    void tokens(std::int64_t, std::int64_t, std::span<std::int64_t> out) const override {
      std::ranges::fill(out, 0);
      if (before < 0) before = *all;
    }
    void prefetch(std::int64_t, std::int64_t, std::int64_t) const override { ++*all; }
    [[nodiscard]] std::string name() const override { return label; }
    std::string label;
    std::shared_ptr<std::int64_t> all;
    mutable std::int64_t before = -1;  // positions prefetched before the first read
  };
  Prefetched a, b;
  a.label = "a", b.label = "b";
  a.all = b.all = std::make_shared<std::int64_t>(0);
  EXPECT_THAT(vocabulary_error(of_parts({{{&a, {0, 1}}, {&b, {0, 1}}}}, 9)), IsEmpty());
  EXPECT_EQ(a.before, 2 * 64);
}

TEST(OutOfVocabularyIds, AreReportedWithTheSmallestSufficientVocabulary) {
  const auto fault = [](std::int64_t id) {
    const Zeros zeros(10, 10, {{7, id}});
    return vocabulary_error(of_parts({{{&zeros, {0, 10}}}}, 64));
  };
  EXPECT_THAT(fault(99),
              AllOf(HasSubstr("zeros: token ids must be 0 to 63; got 99 in document 0 (token 7 of it); "
                              "the data was made with another tokenizer, give that one or "
                              "--vocab-size 100 or more; `colonnade"),
                    Not(HasSubstr("NullTokenizer"))));
  EXPECT_THAT(fault(64), HasSubstr("--vocab-size 65 or more (65 for numbers of Megatron's NullTokenizer"));
  EXPECT_THAT(fault(-1), AllOf(HasSubstr("must be 0 to 63; got -1 in"),
                               HasSubstr("or is damaged; give that tokenizer or rebuild the data; ")));
}

TEST(OutOfVocabularyIds, AnyPositionOfADatasetCanBePrefetched) {
  const IndexedDataset set(test::vector_path("indexed/gpt_uint16")),
      other(test::vector_path("indexed/gpt_uint16"));
  for (std::int64_t i = 0; i < set.num_sequences(); ++i) {
    for (const std::int64_t offset : {std::int64_t{0}, set.length(i)})
      EXPECT_NO_THROW(set.prefetch(i, offset, 1 << 30));
    std::vector<std::int64_t> text(static_cast<std::size_t>(set.length(i))), expected(text.size());
    set.tokens(i, 0, text);
    other.tokens(i, 0, expected);
    EXPECT_EQ(text, expected) << "prefetching does not change the tokens";
  }
}

TEST(OutOfVocabularyIds, AreLocatedInTheirDocument) {
  const Sentences sentences({{3, 2}, {}, {4, 1, 5}, {2}});  // tokens 10 to 26
  const auto stray = find_out_of_vocabulary_id(sentences, {0, 6}, 21);
  ASSERT_TRUE(stray);
  EXPECT_EQ(stray->id, 21);
  EXPECT_EQ(stray->document, 2) << "after an empty one";
  EXPECT_EQ(stray->position, 6);
}

class VocabularyErrorTest : public SentenceBatchesTest {
 protected:
  VocabularyErrorTest() {
    training_.train_iters = 10;
    training_.eval_iters = 0;
  }
  [[nodiscard]] Splits open() const override { return {}; }
};

TEST_F(VocabularyErrorTest, NamesDatasetPositionAndFixForGpt) {
  data_.data_path = {test::vector_path("indexed/gpt_uint16")};
  data_.split = "1,0,0";
  const auto fault = [&](std::int64_t vocab_size) {
    return vocabulary_error(open_gpt_batches(data_, training_, {.vocab_size = vocab_size, .eod = 0}));
  };
  const std::string set = test::vector_path("indexed/gpt_uint16");
  EXPECT_THAT(
      fault(1000),
      AllOf(HasSubstr(set + ": token ids must be 0 to 999; got "), HasSubstr(" in document "),
            HasSubstr("another tokenizer"), HasSubstr("--vocab-size"),
            HasSubstr("`colonnade data inspect " + set + " --check-tokens --vocab-size 1000` counts them")));
  EXPECT_THAT(fault(1152), IsEmpty());
  EXPECT_THAT(fault(0), IsEmpty()) << "not checked";
  data_.data_path.push_back(test::vector_path("indexed/gpt2_uint16"));
  EXPECT_THAT(fault(1000), HasSubstr("; 1 more data set has such ids"));
  const Zeros a(1, 1, {{0, 9}}, "a"), b(1, 1, {{0, 9}}, "b"), c(1, 1, {{0, 9}}, "c");
  EXPECT_THAT(vocabulary_error(of_parts({{{&a, {0, 1}}, {&b, {0, 1}}, {&c, {0, 1}}}}, 9)),
              HasSubstr("; 2 more data sets have such ids"));
  EXPECT_THAT(fault(1152), IsEmpty());
}

TEST_F(VocabularyErrorTest, MockTextHasNoneWithoutATokenizer) {
  data_.data_path.clear();
  data_.mock_data = true;
  EXPECT_THAT(vocabulary_error(open_gpt_batches(data_, training_, {.vocab_size = 10})), IsEmpty());
}

TEST_F(VocabularyErrorTest, RejectsSpecialIdsInNumericTextOfBertAndT5) {
  std::int64_t highest = 0;
  const IndexedDataset set(data_.data_path[0]);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < set.num_sequences(); ++i) {
    ids.resize(static_cast<std::size_t>(set.length(i)));
    set.tokens(i, 0, ids);
    for (const std::int64_t id : ids) highest = std::max(highest, id);
  }
  const auto bert = [&](std::int64_t vocab_size) {
    return vocabulary_error(open_bert_batches(data_, training_, bert_ids(nullptr, vocab_size), true));
  };
  EXPECT_THAT(bert(highest + 5), IsEmpty());
  EXPECT_THAT(bert(highest + 4),
              AllOf(HasSubstr("token ids of text must be 0 to " + std::to_string(highest - 1) + ", below"),
                    HasSubstr("got " + std::to_string(highest) + " in document "),
                    HasSubstr("raise --vocab-size to " + std::to_string(highest + 5) + " or more")));
  training_.decoder_seq_length = 64;
  const auto t5 = [&](std::int64_t vocab_size) {
    return vocabulary_error(open_t5_batches(data_, training_, t5_ids(nullptr, vocab_size, 10)));
  };
  EXPECT_THAT(t5(highest + 11), IsEmpty());
  EXPECT_THAT(t5(highest + 10), HasSubstr("raise --vocab-size to " + std::to_string(highest + 11)));
}

}  // namespace
}  // namespace colonnade::data
