// Segmentations of hand-made unigram models: best sums, ties, characters without a piece, user-defined
// pieces.
#include "colonnade/tokenizers/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <protozero/pbf_writer.hpp>

namespace colonnade::tokenizers {
namespace {

using testing::ElementsAre;

enum Type { kNormal = 1, kUnknown = 2, kUserDefined = 4, kByte = 6 };

/// Builder of a ModelProto; pieces get the ids 0, 1, ... in order.
class Model {
 public:
  Model& piece(const std::string& text, float score, Type type = kNormal) {
    protozero::pbf_writer model(bytes_);
    protozero::pbf_writer piece(model, 1);
    piece.add_string(1, text);
    piece.add_float(2, score);
    piece.add_enum(3, type);
    return *this;
  }
  Model& trainer(int model_type, bool byte_fallback) {
    protozero::pbf_writer model(bytes_);
    protozero::pbf_writer trainer(model, 2);
    trainer.add_enum(3, model_type);
    trainer.add_bool(35, byte_fallback);
    return *this;
  }
  [[nodiscard]] SentencePieceUnigram read() const { return SentencePieceUnigram::read(bytes_).value(); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

TEST(SentencePieceUnigram, MaximizesTheSumOfScores) {
  const SentencePieceUnigram model = Model()
                                         .piece("<unk>", 0, kUnknown)
                                         .piece("a", -3)
                                         .piece("b", -3)
                                         .piece("ab", -7)
                                         .piece("ba", -5)
                                         .read();
  EXPECT_THAT(model.encode("ab"), ElementsAre(1, 2)) << "-6 is better than -7";
  EXPECT_THAT(model.encode("aba"), ElementsAre(1, 4)) << "-8 is better than -9 and -10";
  EXPECT_THAT(model.encode(""), ElementsAre());
}

TEST(SentencePieceUnigram, TheLongerLastPieceWinsTies) {
  const SentencePieceUnigram model =
      Model().piece("<unk>", 0, kUnknown).piece("x", -1).piece("xx", -2).read();
  EXPECT_THAT(model.encode("xx"), ElementsAre(2));
  EXPECT_THAT(model.encode("xxx"), ElementsAre(1, 2)) << "the last piece is the longer one";
}

TEST(SentencePieceUnigram, ARunOfUncoveredCharactersIsOneUnknownToken) {
  const SentencePieceUnigram model = Model().piece("<unk>", 0, kUnknown).piece("a", -1).read();
  EXPECT_THAT(model.encode("a\xe2\x82\xac\xf0\x9f\x98\x80"
                           "a!"),
              ElementsAre(1, 0, 1, 0));
}

TEST(SentencePieceUnigram, UncoveredCharactersBecomeBytesWithByteFallback) {
  Model built;
  built.piece("<unk>", 0, kUnknown).piece("a", -1).trainer(1, true);
  for (const char* byte : {"<0xE2>", "<0x82>", "<0xAC>"}) built.piece(byte, 0, kByte);
  const SentencePieceUnigram model = built.read();
  EXPECT_THAT(model.encode("a\xe2\x82\xac"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(model.join({"a", "<0xE2>", "<0x82>", "<0xAC>", "<0x"}), "a\xe2\x82\xac<0x");
}

TEST(SentencePieceUnigram, UserDefinedPiecesScoreTheirBytesTimesTheBestScore) {
  const SentencePieceUnigram model = Model()
                                         .piece("<unk>", 0, kUnknown)
                                         .piece("<", -1)
                                         .piece("s", -1)
                                         .piece(">", -1)
                                         .piece("<s>", -50, kUserDefined)
                                         .read();
  EXPECT_THAT(model.encode("s<s>"), ElementsAre(2, 1, 2, 3)) << "3 * -1 - 0.1 is less than -3";
  const SentencePieceUnigram likely = Model()
                                          .piece("<unk>", 0, kUnknown)
                                          .piece("<", -1)
                                          .piece("s", -2)
                                          .piece(">", -2)
                                          .piece("<s>", -50, kUserDefined)
                                          .read();
  EXPECT_THAT(likely.encode("s<s>"), ElementsAre(2, 4));
}

TEST(SentencePieceUnigram, ReadsOnlyUnigramModels) {
  EXPECT_FALSE(SentencePieceUnigram::read(Model().piece("a", 0).trainer(2, false).bytes()).has_value());
}

}  // namespace
}  // namespace colonnade::tokenizers
