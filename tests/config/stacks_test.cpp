// Stacks of a model and their sequences.
#include "colonnade/config/stacks.h"

#include <gmock/gmock.h>

namespace colonnade::config {
namespace {

using ::testing::ElementsAre;

TEST(Stacks, OneStackHoldsAllLayers) {
  Model m;
  m.num_layers = 3;
  Training t;
  t.seq_length = 16;
  t.decoder_seq_length = 4;
  ASSERT_EQ(stacks(m).size(), 1U);
  EXPECT_STREQ(stacks(m)[0].name, "decoder");
  EXPECT_EQ(stacks(m)[0].first, 0);
  EXPECT_EQ(stacks(m)[0].last, 3);
  m.bidirectional = true;
  EXPECT_STREQ(stacks(m)[0].name, "encoder") << "of BERT";
  EXPECT_FALSE(has_several_stacks(m));
  EXPECT_EQ(stack_of_layer(m, 2), 0U);
  EXPECT_TRUE(is_in_last_stack(m, 0));
  EXPECT_THAT(sequence_lengths(m, t), ElementsAre(16));
}

TEST(Stacks, LayersOfTheEncoderComeFirst) {
  Model m;
  m.encoder_num_layers = 2;
  m.num_layers = 3;
  Training t;
  t.seq_length = 16;
  t.decoder_seq_length = 4;
  ASSERT_EQ(stacks(m).size(), 2U);
  EXPECT_STREQ(stacks(m)[0].name, "encoder");
  EXPECT_EQ(stacks(m)[0].last, 2);
  EXPECT_STREQ(stacks(m)[1].name, "decoder");
  EXPECT_EQ(stacks(m)[1].first, 2);
  EXPECT_EQ(stacks(m)[1].last, 5);
  EXPECT_TRUE(has_several_stacks(m));
  EXPECT_EQ(stack_of_layer(m, 1), 0U);
  EXPECT_EQ(stack_of_layer(m, 2), 1U);
  EXPECT_FALSE(is_in_last_stack(m, 1));
  EXPECT_THAT(sequence_lengths(m, t), ElementsAre(16, 4));
}

TEST(Stacks, HaveEquallyManyLayersUnlessBothAreGiven) {
  Model m;
  m.num_layers = 3;
  derive_stacks(m);
  EXPECT_EQ(m.encoder_num_layers, 3);
  m.num_layers = 0;
  derive_stacks(m);
  EXPECT_EQ(m.num_layers, 3);
  m.num_layers = 5;
  derive_stacks(m);
  EXPECT_EQ(m.encoder_num_layers, 3);
}

}  // namespace
}  // namespace colonnade::config
