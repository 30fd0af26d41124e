// Sentence indices against Megatron's, and unusable documents.
#include "colonnade/data/samples/sentence_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

Ints values(const IntArray& array) {
  Ints result;
  for (std::int64_t i = 0; i < array.size(); ++i) result.push_back(array[i]);
  return result;
}

TEST(SentenceIndex, MatchesMegatronsForASmallExample) {
  const Sentences source({{5, 6, 7, 8}, {9, 3, 4}, {10, 11, 2, 3, 4}});
  const SentencePlan plan{.documents = {0, 3}, .max_length = 20, .num_samples = 5, .min_sentences = 2};
  const SentenceIndex index = build_sentence_index(source, plan);
  EXPECT_EQ(values(index.sample),
            (Ints{0, 4, 20, 4, 7, 20, 4, 7, 20, 9, 12, 20, 0, 4, 20, 7, 9, 20, 7, 9, 20, 9, 12, 20}));
  EXPECT_EQ(index.epochs, 2);
}

struct Case {
  std::string file;
  std::int64_t max_length;
  std::int64_t min_sentences;
  std::uint32_t seed;
  std::size_t split = 0;
  std::int64_t num_samples = 400;
};

TEST(SentenceIndex, IsByteIdenticalToMegatrons) {
  const IndexedDataset source(test::vector_path("indexed/bert_uint16"));
  const test::TempFolder folder;
  for (const Case& c :
       {Case{"t5_span.sample_index", 126, 1, 13},
        Case{"cache_t5_span/81b3cf429d023171e26280fdade5836b-T5MaskedWordPieceDataset-sample_index", 126, 1,
             13, 1, 40},
        Case{"bert_mlm.sample_index", 125, 1, 12}, Case{"bert_nsp.sample_index", 93, 2, 11},
        Case{"bert_span.sample_index", 61, 2, 2024}}) {
    const SentencePlan plan{.documents = range_of(*parse_split("90,10,0")[c.split], source.num_documents()),
                            .max_length = c.max_length,
                            .num_samples = c.num_samples,
                            .seed = c.seed,
                            .min_sentences = c.min_sentences};
    const SentenceIndex index = build_sentence_index(source, plan);
    EXPECT_EQ(check_sentence_index(source, plan, index.sample).unused.truncated_tokens,
              index.unused.truncated_tokens);
    index.sample.save(folder / "index.npy");
    EXPECT_EQ(read_file(folder / "index.npy"),
              read_file(test::vector_path("indexed/masked/" + c.file + ".npy")))
        << c.file;
  }
}

/// The sentences of all samples, with repetitions.
std::multiset<std::int64_t> sentences_of(const IntArray& sample) {
  std::multiset<std::int64_t> sentences;
  for (std::int64_t row = 0; row < sample.rows(); ++row)
    for (std::int64_t i = sample[3 * row]; i < sample[3 * row + 1]; ++i) sentences.insert(i);
  return sentences;
}

TEST(SentenceIndex, UsesEverySentenceOncePerEpoch) {
  // Including empty documents, one of several sentences with an overlong one, and one that is a long
  // sentence.
  const Sentences source({{3, 3, 3, 3, 3, 3, 3}, {}, {4, 513, 4}, {900}, {512, 0, 2}, {}});
  SentencePlan plan{.documents = {0, 6}, .max_length = 8, .num_samples = std::nullopt};
  EXPECT_EQ(count_usable_documents(source, plan), 3);
  const SentenceIndex once = build_sentence_index(source, plan);
  EXPECT_EQ(once.epochs, 1);
  EXPECT_EQ(once.unused.documents, 3);
  EXPECT_EQ(once.unused.tokens, 4 + 513 + 4);
  EXPECT_EQ(sentences_of(once.sample), (std::multiset<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13}));
  for (std::int64_t row = 0; row < once.sample.rows(); ++row) {
    EXPECT_GE(once.sample[3 * row + 2], 2);
    EXPECT_LE(once.sample[3 * row + 2], 8);
  }
  plan.num_samples = 3 * once.sample.rows();
  const SentenceIndex more = build_sentence_index(source, plan);
  for (const std::int64_t sentence : {0, 6, 10, 13})
    EXPECT_EQ(sentences_of(more.sample).count(sentence), static_cast<std::size_t>(more.epochs)) << sentence;
  plan.documents = {3, 6};
  EXPECT_EQ(*sentences_of(build_sentence_index(source, plan).sample).begin(), 10);
}

TEST(SentenceIndex, FollowsTheShortSequenceProbability) {
  const Sentences source(std::vector<Ints>(2000, Ints{5}));
  const auto short_ones = [&source](double probability) {
    const SentencePlan plan{.documents = {0, 2000},
                            .max_length = 100,
                            .num_samples = std::nullopt,
                            .short_seq_prob = probability};
    const IntArray sample = build_sentence_index(source, plan).sample;
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < sample.rows(); ++row) count += sample[3 * row + 2] < 100 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(short_ones(0), 0);
  EXPECT_EQ(short_ones(1e-300), 0);
  EXPECT_NEAR(static_cast<double>(short_ones(0.1)), 200, 50);
  EXPECT_NEAR(static_cast<double>(short_ones(1)), 1980, 20);
}

TEST(SentenceIndex, RejectsDataWithoutUsableDocuments) {
  const auto error_message = [](const std::vector<Ints>& documents) {
    const Sentences source(documents);
    return test::message_of<DataError>([&] {
      const SentencePlan plan{
          .documents = {0, source.num_documents()}, .max_length = 8, .num_samples = 1000000};
      (void)build_sentence_index(source, plan);
    });
  };
  EXPECT_THAT(error_message({}), HasSubstr("got no such document among 0 to 0"));
  EXPECT_THAT(error_message({{}, {}}), HasSubstr("every text as a list of sentences"));
  EXPECT_THAT(error_message({{600, 1}}), HasSubstr("none of several longer than 512 tokens"));
}

}  // namespace
}  // namespace colonnade::data
