// Token files: reading, label shift, rejected files.
#include "colonnade/inference/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::inference {
namespace {

using testing::HasSubstr;

class TokenFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::map<std::string, at::Tensor>& tensors) const {
    checkpoint::write_safetensors(path_, tensors);
  }
  /// The message of the DataError that reading throws.
  [[nodiscard]] std::string data_error() const {
    try {
      read_token_file(path_, 10, 4);
    } catch (const DataError& e) {
      return e.what();
    }
    return "read without an error";
  }
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("token_file_test_{}.safetensors", ::getpid());
};

at::Tensor ids(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong).view({1, -1}); }

TEST_F(TokenFile, ShiftsLabels) {
  write({{"input_ids", ids({1, 2, 3, 4}).to(at::kInt)}, {"labels", ids({5, -100, 7, 8})}});
  const TokenRows rows = read_token_file(path_, 10, 4);
  EXPECT_TRUE(rows.tokens.equal(ids({1, 2, 3, 4})));
  EXPECT_TRUE(rows.labels.equal(ids({-100, 7, 8, -100})));
}

TEST_F(TokenFile, LabelsDefaultToTokens) {
  write({{"input_ids", ids({1, 2, 3})}});
  EXPECT_TRUE(read_token_file(path_, 10, 4).labels.equal(ids({2, 3, -100})));
  write({{"input_ids", ids({9})}});
  EXPECT_TRUE(read_token_file(path_, 10, 4).labels.equal(ids({-100})));
}

TEST_F(TokenFile, EncoderDecoderInputsAreShiftedLabels) {
  write({{"input_ids", ids({1, 2, 3, 4})},
         {"attention_mask", ids({1, 1, 1, 0})},
         {"labels", ids({5, 6, -100})}});
  const TokenRows rows = read_encoder_token_file(path_, 10, 4);
  EXPECT_TRUE(rows.encoder_tokens.equal(ids({1, 2, 3, 4})));
  EXPECT_TRUE(rows.encoder_padding.equal(ids({0, 0, 0, 1}).to(at::kBool)));
  EXPECT_TRUE(rows.tokens.equal(ids({0, 5, 6})));
  EXPECT_TRUE(rows.labels.equal(ids({5, 6, -100})));
  write({{"input_ids", ids({1, 2})}, {"labels", ids({-100, 9})}});
  EXPECT_FALSE(read_encoder_token_file(path_, 10, 4).encoder_padding.any().item<bool>());
  EXPECT_TRUE(read_encoder_token_file(path_, 10, 4).tokens.equal(ids({0, 0})));
}

TEST_F(TokenFile, RejectsInvalidEncoderDecoderFiles) {
  const auto data_error_of = [&](const std::map<std::string, at::Tensor>& tensors) -> std::string {
    write(tensors);
    try {
      read_encoder_token_file(path_, 10, 4);
    } catch (const DataError& e) {
      return e.what();
    }
    return "read without an error";
  };
  EXPECT_THAT(data_error_of({{"input_ids", ids({1})}}), HasSubstr("labels"));
  EXPECT_THAT(data_error_of({{"input_ids", ids({1, 2})}, {"labels", ids({1})}, {"attention_mask", ids({1})}}),
              HasSubstr("attention_mask must have the shape of input_ids, [1, 2]"));
  EXPECT_THAT(data_error_of({{"input_ids", ids({1})}, {"labels", ids({1, 2, 3, 4, 5})}}),
              HasSubstr("labels must fit the 4 positions of the model; got 5"));
  EXPECT_THAT(data_error_of({{"input_ids", ids({1})}, {"labels", at::ones({2, 3}, at::kLong)}}),
              HasSubstr("labels as many rows"));
  EXPECT_THAT(
      data_error_of({{"input_ids", ids({1, 2})}, {"labels", ids({1})}, {"attention_mask", ids({0, 0})}}),
      HasSubstr("got none in row 0"));
}

TEST_F(TokenFile, ReadsTokenTypesAndUnshiftedLabels) {
  write({{"input_ids", ids({1, 2, 3})},
         {"attention_mask", ids({1, 1, 0})},
         {"token_type_ids", ids({0, 1, 1})},
         {"labels", ids({-100, 5, -100})}});
  const TokenRows rows = read_masked_token_file(path_, 10, 4, 2);
  EXPECT_TRUE(at::equal(rows.tokens, ids({1, 2, 3})));
  EXPECT_TRUE(at::equal(rows.labels, ids({-100, 5, -100}))) << "not shifted";
  EXPECT_TRUE(at::equal(rows.padding, ids({0, 0, 1}).to(at::kBool)));
  EXPECT_TRUE(at::equal(rows.token_types, ids({0, 1, 1})));
  EXPECT_FALSE(read_masked_token_file(path_, 10, 4, 0).token_types.defined());
  write({{"input_ids", ids({1, 2, 3})}});
  const TokenRows plain = read_masked_token_file(path_, 10, 4, 2);
  EXPECT_TRUE(at::equal(plain.labels, plain.tokens));
  EXPECT_FALSE(plain.padding.any().item<bool>());
  EXPECT_FALSE(plain.token_types.any().item<bool>());
}

TEST_F(TokenFile, IsReadAsTheModelNeedsIt) {
  write({{"input_ids", ids({1, 2, 3})}, {"labels", ids({4, 5, 6})}});
  config::Model model;
  model.vocab_size = 10;
  EXPECT_TRUE(read_token_file(path_, model, 4).labels.equal(ids({5, 6, -100}))) << "shifted";
  model.encoder_num_layers = 1;
  EXPECT_TRUE(read_token_file(path_, model, 4).encoder_tokens.equal(ids({1, 2, 3})));
  model.encoder_num_layers = 0;
  model.bidirectional = true;
  EXPECT_TRUE(read_token_file(path_, model, 4).padding.defined());
}

TEST_F(TokenFile, InputsAreTheDefinedTensorsOfTheRows) {
  using tensor::Field;
  const TokenRows rows{.tokens = at::arange(6).view({3, 2}),
                       .labels = at::zeros({3, 2}, at::kLong),
                       .padding = at::zeros({3, 2}, at::kBool)};
  const tensor::Batch batch = rows.inputs(1, 2);
  EXPECT_EQ(batch.keys(), (std::vector<tensor::BatchKey>{Field::kTokens, Field::kPadding}));
  EXPECT_TRUE(batch.at(Field::kTokens).equal(rows.tokens.narrow(0, 1, 2)));
  EXPECT_EQ(batch.at(Field::kPadding).size(0), 2);
}

TEST_F(TokenFile, RejectsInvalidBidirectionalFiles) {
  const auto data_error_of = [&](const std::map<std::string, at::Tensor>& tensors) -> std::string {
    write(tensors);
    try {
      read_masked_token_file(path_, 10, 4, 2);
    } catch (const DataError& e) {
      return e.what();
    }
    return "read without an error";
  };
  EXPECT_THAT(data_error_of({{"input_ids", ids({1, 2})}, {"token_type_ids", ids({0, 2})}}),
              HasSubstr("token_type_ids must be 0 to 1; got 2 at [0, 1]"));
  EXPECT_THAT(data_error_of({{"input_ids", ids({1, 2})}, {"token_type_ids", ids({0})}}),
              HasSubstr("token_type_ids must have the shape of input_ids, [1, 2]; got [1, 1]"));
  EXPECT_THAT(data_error_of({{"input_ids", ids({1, 2})}, {"attention_mask", ids({0, 0})}}),
              HasSubstr("attention_mask must have a nonzero entry in every row; got none in row 0"));
  EXPECT_THAT(data_error_of({{"input_ids", ids({1, 2})}, {"labels", ids({1, 2, 3})}}),
              HasSubstr("labels must have the shape of input_ids"));
}

TEST_F(TokenFile, RejectsInvalidTokenRows) {
  EXPECT_THAT(data_error(), HasSubstr(path_.string()));
  write({{"tokens", ids({1})}});
  EXPECT_THAT(data_error(), HasSubstr("input_ids"));
  write({{"input_ids", ids({1, 2}).to(at::kFloat)}});
  EXPECT_THAT(data_error(), HasSubstr("must be int32 or int64; got F32"));
  write({{"input_ids", at::zeros({2, 2, 2}, at::kLong)}});
  EXPECT_THAT(data_error(), HasSubstr("[batch, sequence]"));
  write({{"input_ids", at::zeros({0, 2}, at::kLong)}});
  EXPECT_THAT(data_error(), HasSubstr("[batch, sequence]"));
  write({{"input_ids", ids({1, 2, 3, 4, 5})}});
  EXPECT_THAT(data_error(), HasSubstr("must fit the 4 positions"));
  write_file_atomically(path_, "not a safetensors file");
  EXPECT_THAT(data_error(), HasSubstr(path_.string()));
}

TEST_F(TokenFile, RefusesIdsOutsideOfTheVocabulary) {
  write({{"input_ids", ids({1, 10})}});
  EXPECT_THAT(data_error(), HasSubstr("must be 0 to 9, the vocabulary of the model; got 10 at [0, 1]"));
  write({{"input_ids", ids({-1, 1})}});
  EXPECT_THAT(data_error(), HasSubstr("got -1 at [0, 0]"));
  write({{"input_ids", ids({1, 2})}, {"labels", ids({-100, 11})}});
  EXPECT_THAT(data_error(), HasSubstr("labels must be 0 to 9"));
  write({{"input_ids", ids({1, 2})}, {"labels", ids({-1, 1})}});
  EXPECT_THAT(data_error(), HasSubstr("labels must be 0 to 9"));
  write({{"input_ids", ids({1, 2})}, {"labels", ids({1, 2, 3})}});
  EXPECT_THAT(data_error(), HasSubstr("must have the shape of input_ids, [1, 2]; got [1, 3]"));
}

}  // namespace
}  // namespace colonnade::inference
