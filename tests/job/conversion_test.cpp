// job/conversion.h: folders survive round trips bit for bit, and faults publish nothing.
#include "colonnade/job/conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/convert/open.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointReader;
using checkpoint::test::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using F = CheckpointFormat;

ConversionReport convert_folder(F from, const fs::path& source, F to, const fs::path& target) {
  return convert({.from = from, .to = to, .source = source, .target = target});
}

std::string conversion_fault(const ConversionOptions& options) {
  try {
    (void)convert(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Both hold the same tensors, but for `ignored` ones.
void expect_same_tensors(const CheckpointReader& a, const CheckpointReader& b) {
  EXPECT_EQ(a.names(), b.names());
  for (const std::string& name : a.names()) {
    if (!b.has(name)) continue;
    EXPECT_EQ(a.info(name).dtype, b.info(name).dtype) << name;
    EXPECT_TRUE(at::equal(a.read(name), b.read(name))) << name;
  }
}

TEST(Conversion, HuggingFaceFoldersSurviveMegatronAndNative) {
  for (const char* name : {"llama", "qwen2", "gemma3_text", "mixtral", "gpt_oss", "deepseek_v3", "gpt2"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const fs::path source = fs::path(test::vectors()) / "hf" / name;
    const CheckpointReader expected = convert::open_hugging_face(source);
    const std::size_t count = expected.names().size();
    for (const F way : {F::kMegatron, F::kNative}) {
      const fs::path middle = folder.path() / (way == F::kNative ? "native" : "megatron");
      const fs::path back = folder.path() / (way == F::kNative ? "native_back" : "megatron_back");
      const ConversionReport there = convert_folder(F::kHuggingFace, source, way, middle);
      EXPECT_EQ(there.source_tensors, count);
      const ConversionReport report = convert_folder(way, middle, F::kHuggingFace, back);
      EXPECT_EQ(report.used_tensors, report.source_tensors);
      EXPECT_EQ(report.target_tensors, report.source_tensors);
      const CheckpointReader got = convert::open_hugging_face(back);
      for (const std::string& tensor : got.names())
        EXPECT_TRUE(at::equal(got.read(tensor), expected.read(tensor))) << tensor;
      EXPECT_EQ(there.used_tensors, got.names().size());
      const auto config = nlohmann::json::parse(read_file(back / "config.json"));
      EXPECT_EQ(config.at("architectures"), expected.hf_config().at("architectures"));
    }
  }
}

TEST(Conversion, OptimizerStatesSurviveMegatron) {
  for (const char* name :
       {"dense_tp2pp2dp2_dpr", "moe_ep2_fully", "buckets_dp2_dpr", "resume_dp2_fully_iter5"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const fs::path source = fs::path(test::vectors()) / "megatron_ckpt_te" / "megatron_ckpt" / name;
    (void)convert_folder(F::kMegatron, source, F::kMegatron, folder.path() / "again");
    (void)convert_folder(F::kMegatron, folder.path() / "again", F::kNative, folder.path() / "native");
    const auto first = convert::find_run(source), again = convert::find_run(folder.path() / "again"),
               native = convert::find_run(folder.path() / "native");
    ASSERT_TRUE(first && again && native);
    expect_same_tensors(*first, *again);
    expect_same_tensors(*first, *native);
    for (const char* key : {"iteration", "consumed_samples", "lr_schedule"}) {
      EXPECT_EQ(again->state().at(key), first->state().at(key)) << key;
      EXPECT_EQ(native->state().at(key), first->state().at(key)) << key;
    }
    EXPECT_EQ(again->state().at("optimizer").at("steps"), first->state().at("optimizer").at("steps"));
  }
}

TEST(Conversion, DtypesAndShardsAreThoseOfTheFlags) {
  const TempFolder folder;
  const fs::path source = fs::path(test::vectors()) / "hf" / "llama";
  ConversionOptions options{.to = F::kHuggingFace, .source = source, .target = folder.path() / "bf16"};
  options.dtype = at::kBFloat16;
  options.shard_bytes = 100'000;
  options.workers = 3;
  EXPECT_GT(convert(options).files, 2U);
  const CheckpointReader got = convert::open_hugging_face(folder.path() / "bf16");
  const CheckpointReader expected = convert::open_hugging_face(source);
  EXPECT_EQ(got.names(), expected.names());
  for (const std::string& name : got.names())
    EXPECT_TRUE(at::equal(got.read(name), expected.read(name).to(at::kBFloat16))) << name;
  const auto config = nlohmann::json::parse(read_file(folder.path() / "bf16" / "config.json"));
  EXPECT_EQ(config.at("dtype"), "bfloat16");
}

TEST(Conversion, AnInterruptedConversionContinues) {
  const TempFolder folder;
  ConversionOptions options{.to = F::kMegatron,
                            .source = fs::path(test::vectors()) / "hf" / "llama",
                            .target = folder.path() / "out"};
  options.shard_bytes = 100'000;
  options.on_file = [](const std::string& file) {
    if (file == "__0_2.distcp") throw Error("interrupted");
  };
  EXPECT_EQ(conversion_fault(options), "interrupted");
  EXPECT_FALSE(fs::exists(options.target));
  const auto kept = fs::last_write_time(folder.path() / "out.converting" / "release" / "__0_0.distcp");
  options.on_file = {};
  const ConversionReport report = convert(options);
  EXPECT_GE(report.kept_files, 2U);
  EXPECT_EQ(fs::last_write_time(options.target / "release" / "__0_0.distcp"), kept);
  EXPECT_FALSE(fs::exists(folder.path() / "out.converting"));
  (void)convert_folder(F::kMegatron, options.target, F::kHuggingFace, folder.path() / "back");
  expect_same_tensors(convert::open_hugging_face(folder.path() / "back"),
                      convert::open_hugging_face(options.source));
}

TEST(Conversion, BadInputPublishesNothing) {
  const TempFolder folder;
  const fs::path source = folder.path() / "source", target = folder.path() / "target";
  fs::copy(fs::path(test::vectors()) / "hf" / "llama", source);
  const auto fault = [&] {
    const std::string text = conversion_fault({.to = F::kMegatron, .source = source, .target = target});
    EXPECT_FALSE(fs::exists(target));
    return text;
  };
  // A config that contradicts the tensors.
  const std::string config = read_file(source / "config.json");
  auto changed = nlohmann::json::parse(config);
  changed["num_hidden_layers"] = 3;
  write_file_atomically(source / "config.json", changed.dump());
  EXPECT_THAT(fault(), AllOf(HasSubstr("every tensor of the model"), HasSubstr("model.layers.2.")));
  write_file_atomically(source / "config.json", config);
  // A truncated shard.
  fs::resize_file(source / "model.safetensors", 5000);
  EXPECT_THAT(fault(), HasSubstr("model.safetensors"));
  // A target with files in it.
  fs::create_directory(target);
  std::ofstream(target / "file") << "x";
  EXPECT_THAT(conversion_fault({.to = F::kMegatron, .source = source, .target = target}),
              HasSubstr("model.safetensors"));
  fs::remove_all(source);
  fs::copy(fs::path(test::vectors()) / "hf" / "llama", source);
  EXPECT_THAT(conversion_fault({.to = F::kMegatron, .source = source, .target = target}),
              HasSubstr("--to must name a new or empty folder"));
}

TEST(Conversion, MissingRanksAndSegmentsAreErrors) {
  const TempFolder folder;
  const fs::path te = fs::path(test::vectors()) / "megatron_ckpt_te" / "megatron_ckpt";
  const auto copy_of = [&](const char* name) {
    fs::copy(te / name, folder.path() / name, fs::copy_options::recursive);
    return folder.path() / name;
  };
  const auto fault = [&](const fs::path& source) {
    return conversion_fault(
        {.from = F::kMegatron, .to = F::kNative, .source = source, .target = folder.path() / "out"});
  };
  const fs::path legacy = copy_of("dense_tp2pp2dp2_torch");
  fs::remove_all(legacy / "iter_0000003" / "mp_rank_01_001");
  EXPECT_THAT(fault(legacy),
              AllOf(HasSubstr("got none of tensor rank 1, pipeline rank 1"), HasSubstr("copy the folder")));
  const fs::path dist = copy_of("dense_tp2pp2dp2_fully");
  fs::remove(dist / "iter_0000003" / "__3_0.distcp");
  EXPECT_THAT(fault(dist), HasSubstr("__3_0.distcp"));
  const fs::path mixed = copy_of("moe_ep2_fully");  // a segment file of another checkpoint
  fs::copy_file(te / "moe_ep2_dpr" / "iter_0000002" / "__1_0.distcp", mixed / "iter_0000002" / "__1_0.distcp",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(fault(mixed), "");
  EXPECT_FALSE(fs::exists(folder.path() / "out"));
}

}  // namespace
}  // namespace colonnade::job
