// Descriptions and cache file names against Megatron Core's, and caches that Megatron Core wrote.
#include "colonnade/data/unique_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/md5.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Identity of the tokenizer of the vectors.
std::string oracle(const std::string& file) {
  return JsonDict().add("class", json_of("OracleTokenizer")).add("tokenizer_file", json_of(file)).text();
}

/// Expects the description with the MD5 of `text` to exist and to be equal to `text`.
void expect_description(const std::string& folder, const std::string& kind, const std::string& text) {
  const fs::path file =
      fs::path(test::vector_path("indexed/" + folder)) / (md5_hex(text) + "-" + kind + "-description.txt");
  ASSERT_TRUE(fs::exists(file)) << text;
  EXPECT_EQ(read_file(file), text);
}

TEST(UniqueDescription, MatchesMegatronsForGpt) {
  DatasetClass gpt{
      .name = "GPTDataset", .seed = 1234, .seq_length = 64, .tokenizer = oracle("gpt2_bpe.json")};
  const auto one = [&gpt](const char* prefix, std::int64_t samples, Split split, const char* words) {
    return describe_dataset(gpt, prefix, samples, split, words);
  };
  const std::string first = "indexed/gpt_uint16", second = "indexed/gpt2_uint16";
  expect_description("gpt/cache_A", "GPTDataset-train", one(first.c_str(), 1966, Split::kTrain, "969,30,1"));
  expect_description("gpt/cache_A", "GPTDataset-valid", one(first.c_str(), 60, Split::kValid, "969,30,1"));
  expect_description("gpt/cache_A", "GPTDataset-test", one(first.c_str(), 12, Split::kTest, "969,30,1"));
  gpt.seed = 99;
  expect_description("gpt/cache_blend_weighted", "BlendedDataset-train",
                     describe_blend(std::vector{one(first.c_str(), 212, Split::kTrain, "95,5,0"),
                                                one(second.c_str(), 493, Split::kTrain, "95,5,0")},
                                    Split::kTrain, normalize(std::vector{0.3, 0.7}), 700));
  expect_description("gpt/cache_blend_unnormalized", "BlendedDataset-train",
                     describe_blend(std::vector{one(first.c_str(), 238, Split::kTrain, "1,0,0"),
                                                one(second.c_str(), 99, Split::kTrain, "1,0,0")},
                                    Split::kTrain, normalize(normalize(std::vector{30.0, 12.5})), 334));
}

// json.dumps(..., indent=4) of BlendedDataset's attributes: without a size the weights are sample counts.
TEST(UniqueDescription, OfAnExhaustiveBlendHoldsSampleCounts) {
  const std::vector<std::string> sets{"1", "2"};
  EXPECT_EQ(describe_blend(sets, Split::kValid, std::vector<std::int64_t>{883, 712}),
            "{\n    \"class\": \"BlendedDataset\",\n    \"datasets\": [\n        1,\n        2\n    ],\n"
            "    \"split\": \"valid\",\n    \"weights\": [\n        883,\n        712\n    ],\n"
            "    \"size\": null\n}");
}

TEST(UniqueDescription, FormatsNumbersAndTextLikePython) {
  for (const auto& [value, text] :
       std::vector<std::pair<double, std::string>>{{0.1, "0.1"},
                                                   {1, "1.0"},
                                                   {0.0001, "0.0001"},
                                                   {0.00001, "1e-05"},
                                                   {1e15, "1000000000000000.0"},
                                                   {1e16, "1e+16"},
                                                   {1.0 / 3, "0.3333333333333333"},
                                                   {123456.75, "123456.75"}})
    EXPECT_EQ(json_of(value), text);
  EXPECT_EQ(json_of("a\"\n\xc3\xa9"), "\"a\\\"\\n\\u00e9\"");
  EXPECT_EQ(json_list({}), "[]");
}

/// Megatron Core 0.16.1's identities for default arguments, except that --tokenizer-hf-include-special-tokens
/// is on here.
TEST(UniqueDescription, IdentifiesTokenizersByTheirArguments) {
  config::Data data;
  EXPECT_EQ(tokenizer_identity(data, 5), "null");
  data.tokenizer_type = "NullTokenizer";
  const std::string made =
      "{\n    \"class\": \"megatron.core.tokenizers.text.models.default_tokenizer.DefaultTokenizerText\",\n";
  EXPECT_EQ(tokenizer_identity(data, 5),
            made + "    \"tokenizer_path\": null,\n    \"vocab_size\": \"5\"\n}");
  data.tokenizer_type = "Llama2Tokenizer";
  data.tokenizer_model = "a/tokenizer.model";
  EXPECT_EQ(tokenizer_identity(data, 5),
            made +
                "    \"tokenizer_path\": \"a/tokenizer.model\",\n"
                "    \"legacy\": \"False\",\n    \"special_tokens\": \"None\"\n}");
  data.tokenizer_type = "GPT2BPETokenizer";
  data.vocab_file = "v.json";
  data.merge_file = "m.txt";
  EXPECT_EQ(
      tokenizer_identity(data, 5),
      made +
          "    \"tokenizer_path\": \"GPT2BPETokenizer\",\n    \"additional_special_tokens\": \"[]\",\n"
          "    \"vocab_file\": \"v.json\",\n    \"merges_file\": \"m.txt\",\n    \"use_fast\": \"False\",\n"
          "    \"trust_remote_code\": \"False\",\n    \"include_special_tokens\": \"True\"\n}");
}

class MegatronCacheTest : public ::testing::Test {
 protected:
  MegatronCacheTest() {
    log::set_level(log::Level::kInfo);
    fs::create_directories(cache_);
    data_.data_path = {folder_ / "data"};
    data_.split = "969,30,1";
    data_.data_cache_path = cache_;
    for (const char* end : {".idx", ".bin"}) {
      fs::copy_file(test::vector_path(std::string("indexed/gpt_uint16") + end), data_.data_path[0] + end);
      fs::last_write_time(data_.data_path[0] + end, now_ - std::chrono::hours(2));
    }
    const DatasetClass gpt{.name = "GPTDataset", .seed = 1234, .seq_length = 64};
    const std::string description =
        describe_dataset(gpt, data_.data_path[0], 1966, Split::kTrain, data_.split);
    stem_ = cache_ / (md5_hex(description) + "-GPTDataset-train-");
    write_file_atomically(stem_ + "description.txt", description);
    for (const char* name : {"document_index.npy", "sample_index.npy", "shuffle_index.npy"}) {
      fs::copy_file(test::vector_path(std::string("indexed/gpt/A_train.") + name), stem_ + name);
      fs::last_write_time(stem_ + name, now_ - std::chrono::hours(1));
    }
  }

  /// Log lines of opening the data.
  std::string open() {
    testing::internal::CaptureStderr();
    EXPECT_EQ(open_gpt_samples(data_, {1966, 0, 0}, 64, 1234, {})[0]->size(), 2564);
    return testing::internal::GetCapturedStderr();
  }
  [[nodiscard]] bool untouched(const std::string& name) const {
    return fs::last_write_time(stem_ + name) == now_ - std::chrono::hours(1);
  }
  void expect_complete() const {
    for (const std::string name : {"document_index.npy", "sample_index.npy", "shuffle_index.npy"})
      EXPECT_EQ(read_file(stem_ + name), read_file(test::vector_path("indexed/gpt/A_train." + name))) << name;
  }

  const fs::file_time_type now_ = fs::file_time_type::clock::now();
  test::TempFolder folder_;
  const fs::path cache_ = folder_ / "cache";
  config::Data data_;
  std::string stem_;
};

TEST_F(MegatronCacheTest, IsReused) {
  EXPECT_THAT(open(), HasSubstr("reused"));
  EXPECT_EQ(open(), "");  // it has the fingerprint now
  EXPECT_TRUE(untouched("document_index.npy") && untouched("sample_index.npy") &&
              untouched("shuffle_index.npy"));
  expect_complete();
}

TEST_F(MegatronCacheTest, IsRebuiltIfOlderThanTheData) {
  fs::last_write_time(data_.data_path[0] + ".bin", now_);
  EXPECT_THAT(open(), HasSubstr("older than the data"));
  EXPECT_FALSE(untouched("shuffle_index.npy"));
  expect_complete();
  fs::last_write_time(data_.data_path[0] + ".bin", now_ + std::chrono::seconds(5));
  EXPECT_THAT(open(), HasSubstr("reused"));  // its arrays match, whatever the times
  EXPECT_EQ(open(), "");
}

/// Like `evaluate --load` and `data audit`, which use the absolute forms of the run's paths.
TEST_F(MegatronCacheTest, IsFoundByAnySpellingOfItsPaths) {
  fs::remove_all(cache_);
  const std::string absolute = data_.data_path[0], relative = fs::relative(absolute);
  const auto open = [&] {
    testing::internal::CaptureStderr();
    EXPECT_NE(open_gpt_samples(data_, {1000, 0, 0}, 64, 1234, {})[0], nullptr);
    return testing::internal::GetCapturedStderr();
  };
  for (const bool blend : {false, true}) {
    const auto spell = [&](const std::string& prefix) {
      data_.data_path = {prefix};
      if (blend) data_.data_path = {"0.3", prefix, "0.7", prefix};
    };
    spell(relative);
    EXPECT_THAT(open(), HasSubstr("indexing"));
    const auto files = std::distance(fs::directory_iterator(cache_), {});
    for (const std::string& prefix : {absolute, "./" + relative}) {
      spell(prefix);
      EXPECT_EQ(open(), "");
      EXPECT_EQ(std::distance(fs::directory_iterator(cache_), {}), files);
    }
    const fs::path here = fs::current_path();
    fs::current_path(fs::temp_directory_path());
    spell(absolute);
    EXPECT_EQ(open(), "") << "the working directory differs from the run's";
    fs::current_path(here);
  }
  // The same paths on another host: the fingerprint of other data.
  for (const auto& file : fs::directory_iterator(cache_))
    if (file.path().string().ends_with("GPTDataset-train-colonnade.txt"))
      write_file_atomically(file.path(), "build 1\n\n/elsewhere/x 5 bytes, changed 1\n");
  data_.data_path = {absolute};
  EXPECT_THAT(open(), HasSubstr("indexing"));
}

/// Hosts with copies of the data in different places, whose paths are spelled alike, and a common cache
/// folder.
TEST_F(MegatronCacheTest, IsSharedByCopiesOfABlend) {
  fs::remove_all(cache_);
  const fs::path set = data_.data_path[0], link = folder_ / "here";
  std::vector<fs::path> copies;
  for (const char* name : {"one", "two"}) {
    copies.emplace_back(folder_ / name);
    fs::create_directories(copies.back());
    for (const char* end : {".bin", ".idx"})
      fs::copy_file(set.string() + end, copies.back() / (set.filename().string() + end));
  }
  const std::string words = link / set.filename();
  data_.data_path = {"0.3", words, "0.7", words};
  const auto open = [&](const fs::path& copy) {
    fs::remove(link);
    fs::create_directory_symlink(copy, link);
    testing::internal::CaptureStderr();
    EXPECT_NE(open_gpt_samples(data_, {1000, 0, 0}, 64, 1234, {})[0], nullptr);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(open(copies[0]), HasSubstr("indexing"));
  EXPECT_THAT(open(copies[1]), AllOf(HasSubstr("reused"), Not(HasSubstr("indexing"))));
  for (const fs::path& copy : copies) EXPECT_EQ(open(copy), "");
}

TEST(UniqueDescription, IsTheSameWithoutPaths) {
  DatasetClass gpt{.name = "GPTDataset", .seed = 1, .seq_length = 2};
  config::Data data;
  data.tokenizer_type = "GPT2BPETokenizer";
  const std::string here = fs::current_path();
  const auto text = [&](const std::string& prefix, const std::string& vocab) {
    data.vocab_file = vocab;
    gpt.tokenizer = tokenizer_identity(data, 5);
    return describe_dataset(gpt, prefix, 3, Split::kTrain, "1");
  };
  const auto blend = [](const std::string& set) {
    return describe_blend(std::vector{set, set}, Split::kTrain, std::vector{0.5, 0.5}, 7);
  };
  const std::string one = text("a/b", "v"), two = text(here + "/a/../a/b", here + "/v");
  EXPECT_NE(one, two);
  EXPECT_EQ(without_paths(one), without_paths(two));
  EXPECT_EQ(without_paths(blend(one)), without_paths(blend(two)));
  gpt.seed = 2;
  for (const std::string& other : {text("a/b", "v"), blend(one)})
    EXPECT_NE(without_paths(one), without_paths(other));
  for (const std::string none : {"", "text", "{}", "[1]", "{\"class\": "}) EXPECT_EQ(without_paths(none), "");
  EXPECT_EQ(without_paths("{\"class\": " + std::string(100'000, '[')), "");
}

TEST_F(MegatronCacheTest, IsRebuiltIfDamaged) {
  for (const std::string name : {"document_index.npy", "sample_index.npy", "shuffle_index.npy"})
    for (const bool cut : {true, false}) {
      SCOPED_TRACE(name);
      std::string bytes = read_file(stem_ + name);
      if (cut)
        bytes.pop_back();
      else
        bytes.replace(bytes.size() - 4, 4, std::string(4, '\x7f'));
      write_file_atomically(stem_ + name, bytes);
      fs::remove(stem_ + "colonnade.txt");
      EXPECT_THAT(open(), HasSubstr("rebuilt"));
      expect_complete();
    }
}

/// All files that Megatron expects, and our fingerprints.
TEST_F(MegatronCacheTest, IsReadableByMegatron) {
  const std::string description = read_file(stem_ + "description.txt");
  fs::remove_all(cache_);
  EXPECT_THAT(open(), HasSubstr("indexing"));
  EXPECT_EQ(read_file(stem_ + "description.txt"), description);
  expect_complete();
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(cache_)) names.insert(file.path().string());
  EXPECT_EQ(names, (std::set{stem_ + "colonnade.txt", stem_ + "description.txt", stem_ + "document_index.npy",
                             stem_ + "sample_index.npy", stem_ + "shuffle_index.npy"}));
  data_.data_cache_path.clear();
  (void)open();
  EXPECT_TRUE(fs::exists(folder_ / "data/cache/GPTDataset_indices"));
}

}  // namespace
}  // namespace colonnade::data
