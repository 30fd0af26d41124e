// Missing tokenizer files, for every verb and tokenizer type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Words sizes() {
  return {"--num-layers",
          "2",
          "--hidden-size",
          "32",
          "--num-attention-heads",
          "4",
          "--seq-length",
          "32",
          "--max-position-embeddings",
          "32",
          "--micro-batch-size",
          "1"};
}

/// `plan` needs the tokenizer for the size of the vocabulary.
TEST(TokenizerFiles, MissingTokenizerFileIsReportedEquallyByEveryVerb) {
  const std::vector<std::pair<Words, std::string>> missing = {
      {{"--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model", "nope.model"},
       "nope.model must be a SentencePiece .model file; got no such file"},
      {{"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "org/nope"},
       "org/nope must be a tokenizer.json, or a folder with one; got no such file"},
      {{"--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "nope.json", "--merge-file", "nope.txt"},
       "nope.json must be a file; got no such file"},
      {{"--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", "nope.txt"},
       "nope.txt must be a file; got no such file"},
      {{"--tokenizer-type", "TikTokenizer", "--tokenizer-model", "nope.json"},
       "nope.json must be a file; got no such file"}};
  const TempFolder folder;
  const std::vector<Words> verbs = {
      Words{"plan"} + sizes(),
      Words{"pretrain", "--mock-data", "--train-iters", "1", "--lr", "1"} + sizes(),
      Words{"plan", "--dry-run", "--rank", "0"} + sizes(),
      {"data", "inspect", "--mock-data", "--seq-length", "32"}};
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const auto& [tokenizer, message] = missing[i];
    for (std::size_t verb = 0; verb < (i == 0 ? verbs.size() : 1); ++verb) {
      const Result result = run(colonnade(verbs[verb] + tokenizer), {}, folder.path());
      EXPECT_EQ(result.code, 3) << result.text;
      EXPECT_THAT(result.text, AllOf(testing::StartsWith("error: "), HasSubstr(message)));
      EXPECT_EQ(std::count(result.text.begin(), result.text.end(), '\n'), 1) << result.text;
    }
  }
  const Words plan = Words{"plan"} + sizes();
  EXPECT_EQ(run(colonnade(plan + missing[0].first + Words{"--vocab-size", "128"})).code, 0)
      << "a given size requires no file";
  const Result planned =
      run(colonnade(plan + Words{"--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model",
                                 test::vectors() + "/tokenizers/sp_unigram.model"}));
  EXPECT_EQ(planned.code, 0) << planned.text;
}

}  // namespace
}  // namespace colonnade::e2e
