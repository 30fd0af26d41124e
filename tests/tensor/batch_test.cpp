// Keys of a batch, its error message, and copies on another device.
#include "colonnade/tensor/batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BatchKey kImage = BatchKey::custom("image");

TEST(Batch, FindsEachTensorUnderItsKey) {
  Batch batch({{Field::kTokens, at::zeros({1})}, {kImage, at::ones({1})}});
  batch.set({Field::kTokens, 2}, at::full({1}, 2));
  EXPECT_EQ(batch.at(Field::kTokens).item<int>(), 0);
  EXPECT_EQ(batch.at(kImage).item<int>(), 1);
  EXPECT_EQ(batch.at({Field::kTokens, 2}).item<int>(), 2);
  EXPECT_EQ(batch.at(BatchKey::custom("image")).item<int>(), 1) << "the name is the key";
  for (const BatchKey& missing :
       std::vector<BatchKey>{Field::kLabels, {Field::kTokens, 1}, BatchKey::custom("tokens")})
    EXPECT_FALSE(batch.find(missing).defined()) << missing.name();
  batch.set(kImage, at::full({1}, 3));
  EXPECT_EQ(batch.find(kImage).item<int>(), 3) << "set replaces";
}

TEST(Batch, ErrorOfAMissingKeyListsTheExistingOnesByName) {
  const Batch batch({{{Field::kTokens, 3}, at::zeros({1})},
                     {kImage, at::zeros({1})},
                     {Field::kTokens, at::zeros({1})},
                     {Field::kLossMask, at::zeros({1})}});
  try {
    (void)batch.at({Field::kLossCount, 1});
    FAIL() << "must throw";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("batch must contain 'loss_count_ahead_1', which a block reads; got image, "
                          "loss_mask, tokens, tokens_ahead_3; add it in the data step"));
  }
}

TEST(Batch, ShardsTokensLabelsMaskAndPositionsAlongTheSequence) {
  std::vector<std::string> sharded;
  for (const Field field :
       {Field::kTokens, Field::kLabels, Field::kLossMask, Field::kLossCount, Field::kSamples,
        Field::kPositionIds, Field::kCuSeqlens, Field::kPadding, Field::kTokenTypes, Field::kSwapped,
        Field::kEncoderTokens, Field::kEncoderPadding}) {
    const BatchKey key(field), shifted(field, 1);
    EXPECT_EQ(shifted.is_sequence_sharded(), key.is_sequence_sharded()) << key.name();
    if (key.is_sequence_sharded()) sharded.push_back(key.name());
  }
  EXPECT_THAT(sharded, ElementsAre("tokens", "labels", "loss_mask", "position_ids"));
  EXPECT_FALSE(kImage.is_sequence_sharded());
}

TEST(Batch, CountsTheTokensOfAllSequencesOfASample) {
  Batch batch({{Field::kTokens, at::zeros({2, 3})}});
  EXPECT_EQ(batch.tokens_per_sample(), 3);
  batch.set(Field::kEncoderTokens, at::zeros({2, 5}));
  EXPECT_EQ(batch.tokens_per_sample(), 8);
  EXPECT_THROW((void)Batch().tokens_per_sample(), Error);
}

TEST(Batch, DocumentsMoveWithIt) {
  Batch batch;
  EXPECT_FALSE(batch.documents().any());
  batch.set_documents({{0, 3, 8}});
  const Batch moved = batch.to(at::kMeta);
  EXPECT_THAT(moved.documents().cu_seqlens, ElementsAre(0, 3, 8));
  EXPECT_TRUE(moved.at(Field::kCuSeqlens).is_meta());
  EXPECT_TRUE(at::equal(batch.at(Field::kCuSeqlens), at::tensor({0, 3, 8}, at::kInt)));
}

TEST(Batch, MovesEveryTensorAndItsShare) {
  Batch batch(
      {{Field::kTokens, at::zeros({2})}, {{Field::kLabels, 1}, at::zeros({3})}, {kImage, at::zeros({4})}});
  batch.set_share({.ranks = 2, .tokens = 5});
  const Batch moved = batch.to(at::kMeta);
  ASSERT_EQ(moved.keys(), batch.keys());
  for (const BatchKey& key : moved.keys()) {
    EXPECT_TRUE(moved.at(key).is_meta()) << key.name();
    EXPECT_EQ(moved.at(key).sizes(), batch.at(key).sizes()) << key.name();
    EXPECT_TRUE(batch.to(at::kCPU).at(key).is_same(batch.at(key))) << "shared: " << key.name();
  }
  EXPECT_EQ(moved.share().ranks, 2);
  EXPECT_EQ(moved.share().tokens, 5);
}

}  // namespace
}  // namespace colonnade::tensor
