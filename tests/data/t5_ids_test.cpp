// T5's special ids for all kinds of tokenizers.
#include "colonnade/data/samples/t5/t5_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

/// A vocabulary of 100 pieces, some of them named.
class Model final : public tokenizers::Tokenizer {
 public:
  Model(tokenizers::SpecialIds special, std::map<std::string, std::int32_t, std::less<>> pieces)
      : special_(special), pieces_(std::move(pieces)) {}
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view) const override { return {}; }
  [[nodiscard]] std::string decode(std::span<const std::int32_t>) const override { return {}; }
  [[nodiscard]] std::int64_t vocab_size() const override { return 100; }
  [[nodiscard]] tokenizers::SpecialIds special() const override { return special_; }
  [[nodiscard]] std::int32_t id_of(std::string_view piece) const override {
    const auto found = pieces_.find(piece);
    return found == pieces_.end() ? -1 : found->second;
  }
  [[nodiscard]] std::int32_t eod() const override { return special_.eos; }

 private:
  tokenizers::SpecialIds special_;
  std::map<std::string, std::int32_t, std::less<>> pieces_;
};

TEST(T5Ids, OfNumericTextAreTheLastIds) {
  const auto tokenizer = tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 50});
  for (const tokenizers::Tokenizer* given :
       std::array<const tokenizers::Tokenizer*, 2>{tokenizer.get(), nullptr}) {
    const T5Ids ids = t5_ids(given, 50, 3);
    EXPECT_EQ(ids.vocab_size, 50);
    EXPECT_EQ(ids.sentinels, (Ints{47, 48, 49}));
    EXPECT_EQ(ids.eos, 46);
    EXPECT_EQ(ids.bos, 46);
    EXPECT_EQ(ids.pad, -1);
  }
  EXPECT_EQ(t5_ids(nullptr, 3, 1).eos, 1);
}

TEST(T5Ids, OfAModelAreItsPieces) {
  const Model t5({.eos = 1, .unk = 2, .pad = 0},
                 {{"<extra_id_0>", 99}, {"<extra_id_1>", 98}, {"<extra_id_3>", 97}});
  const T5Ids ids = t5_ids(&t5, 100, 0);
  EXPECT_EQ(ids.sentinels, (Ints{99, 98}));
  EXPECT_EQ(ids.bos, 0);  // decodes from pad
  EXPECT_EQ(ids.eos, 1);
  EXPECT_EQ(ids.pad, 0);
  EXPECT_EQ(t5_ids(&t5, 100, 1).sentinels, (Ints{99}));
  EXPECT_EQ(t5_ids(&t5, 128, 5).sentinels, (Ints{99, 98, 100, 97, 101}));  // missing ones follow its pieces
}

TEST(T5Ids, FollowThePiecesOfAModelWithoutSentinels) {
  const auto llama = tokenizers::make_tokenizer(
      {.type = "SentencePieceTokenizer", .model = test::vector_path("tokenizers/llama2_sp_bpe.model")});
  EXPECT_EQ(llama->id_of("<s>"), 1);
  EXPECT_EQ(llama->id_of("<unk>"), 0);
  EXPECT_EQ(llama->id_of("<extra_id_0>"), -1);
  const T5Ids ids = t5_ids(llama.get(), 2048, 3);
  EXPECT_EQ(ids.sentinels, (Ints{2000, 2001, 2002}));
  EXPECT_EQ(ids.bos, 1);
  EXPECT_EQ(ids.eos, 2);
  EXPECT_EQ(ids.pad, -1);
  const Model bare({.eos = 5}, {});
  EXPECT_EQ(t5_ids(&bare, 200, 1).bos, 5);
}

TEST(T5Ids, ReportMissingSentinelsWithAFix) {
  const auto error_message = [](const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size,
                                std::int64_t extra) {
    return test::message_of<ConfigError>([&] { (void)t5_ids(tokenizer, vocab_size, extra); });
  };
  EXPECT_THAT(error_message(nullptr, 50, 0), HasSubstr("--vocab-extra-ids: the last ids of the vocabulary"));
  EXPECT_THAT(error_message(nullptr, 50, 49), HasSubstr("1 to 48 of 50; got 49"));
  const Model bare({.eos = 5}, {});
  EXPECT_THAT(error_message(&bare, 100, 0), HasSubstr("<extra_id_0>"));
  EXPECT_THAT(error_message(&bare, 100, 2), HasSubstr("102 in all; got 100; set --vocab-size 102"));
  EXPECT_THAT(error_message(&bare, 50, 0), HasSubstr("--vocab-extra-ids"));
  const Model t5({.eos = 1, .pad = 0}, {{"<extra_id_0>", 99}});
  EXPECT_THAT(error_message(&t5, 99, 0), HasSubstr("set --vocab-size 100"));
}

}  // namespace
}  // namespace colonnade::data
