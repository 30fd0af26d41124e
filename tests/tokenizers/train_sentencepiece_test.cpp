// Training of a SentencePiece model: errors about the vocabulary size and the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/tokenizer.h"
#include "support/files.h"
#include "tokenizers/training_texts.h"

namespace colonnade::tokenizers {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TrainSentencePiece, ErrorsNameTheValidVocabularySize) {
  const auto message = [](std::int64_t vocab_size, std::vector<std::string> texts) {
    return test::message_of<DataError>(
        [&] { train_sentencepiece(stream_of(std::move(texts)), {.vocab_size = vocab_size}); });
  };
  EXPECT_THAT(message(10, {"x", "y"}), AllOf(HasSubstr("--vocab-size must be at least 262"),
                                             HasSubstr("got 10; raise it"), Not(HasSubstr("lower it"))));
  EXPECT_THAT(message(10000, {"x", "y"}), HasSubstr("--vocab-size must be at most 264, the pieces that 2 "
                                                    "lines of text give; got 10000; lower it or add text"));
  EXPECT_THAT(message(300, {"", "\n"}), HasSubstr("must get text to train on; got none"));
  EXPECT_THAT(message(300, {std::string(1'000'001, 'x')}),
              HasSubstr("must have at most 1000000 bytes; got 1, all of them longer; break them"));
}

}  // namespace
}  // namespace colonnade::tokenizers
