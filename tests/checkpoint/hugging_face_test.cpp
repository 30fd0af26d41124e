// Errors for model folders that cannot be read; indices, shards and views of stored tensors.
#include "colonnade/checkpoint/hugging_face.h"

#include <gmock/gmock.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::checkpoint {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::AllOf;
using testing::HasSubstr;

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 440449768\n";

/// The fault of a folder with these files.
std::string fault_of(const std::vector<std::string>& files) {
  const TempFolder folder;
  for (const std::string& file : files) {
    fs::create_directories((folder.path() / file).parent_path());
    write_raw(folder.path() / file, "{}");
  }
  return unsupported_weights_fault(folder);
}

TEST(HuggingFace, UnsupportedWeightFormatsAreNamedWithAFix) {
  for (const auto& [file, kind] : std::vector<std::pair<std::string, const char*>>{
           {"pytorch_model.bin", "a PyTorch pickle, which is not supported; save them as safetensors"},
           {"pytorch_model-00001-of-00002.bin", "a PyTorch pickle"},
           {"pytorch_model.bin.index.json", "an index of PyTorch pickles"},
           {"weights.pt", "a PyTorch pickle"},
           {"model.ckpt", "a PyTorch pickle"},
           {"tf_model.h5", "TensorFlow weights"},
           {"flax_model.msgpack", "Flax weights"},
           {"llama-Q4_K_M.gguf", "a GGUF file"},
           {"consolidated.safetensors", "the original format of its authors"},
           {"consolidated.00.pth", "the original format of its authors"},
           {"adapter_model.safetensors", "the weights of a PEFT adapter"},
           {"model-00001-of-00002.safetensors", "a shard without model.safetensors.index.json"},
           {"model.fp16.safetensors", "name the file model.safetensors"}})
    EXPECT_THAT(fault_of({"config.json", file}),
                AllOf(HasSubstr("weights must be in model.safetensors; got " + file), HasSubstr(kind)));
}

TEST(HuggingFace, FoldersWithoutConfigOrWeightsReportTheMissingOne) {
  EXPECT_THAT(fault_of({"config.json", "tokenizer.json"}), HasSubstr("got no weights"));
  EXPECT_THAT(fault_of({"model.safetensors"}),
              HasSubstr("weights must be next to their config.json; got none"));
  EXPECT_THAT(fault_of({"README.md", "snapshots/1f2e/config.json", "snapshots/1f2e/model.safetensors"}),
              AllOf(HasSubstr("got weights in "), HasSubstr("snapshots/1f2e; name that folder")));
  EXPECT_THAT(fault_of({"config.json", "weights/model.safetensors"}), HasSubstr("put both into one folder"));
}

TEST(HuggingFace, ReadableFoldersAndFoldersWithoutAModelHaveNoFault) {
  EXPECT_EQ(fault_of({"README.md"}), "");
  EXPECT_EQ(fault_of({"config.json", "model.safetensors"}), "") << "it is read";
  EXPECT_EQ(fault_of({"text_document.bin", "text_document.idx"}), "");
  EXPECT_EQ(fault_of({"old/weights.pt"}), "");
}

TEST(HuggingFace, FileInPlaceOfAFolderIsReported) {
  const TempFolder folder;
  write_raw(folder.path() / "a.gguf", "GGUF\3");
  EXPECT_THAT(unsupported_weights_fault(folder.path() / "a.gguf"),
              HasSubstr("must be a folder; got a GGUF file"));
  write_raw(folder.path() / "config.json", "{}");
  write_safetensors(folder.path() / "model.safetensors", {{"a", at::ones({2})}});
  EXPECT_THAT(unsupported_weights_fault(folder.path() / "model.safetensors"),
              AllOf(HasSubstr("got a safetensors file"), HasSubstr("run, " + folder.path().string())));
}

TEST(HuggingFace, LfsPointersAreReported) {
  const auto is_pointer = AllOf(HasSubstr("got a Git LFS pointer"), HasSubstr("git lfs pull"));
  for (const char* file : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    const TempFolder folder;
    write_raw(folder.path() / "config.json", "{}");
    write_raw(folder.path() / file, kPointer);
    if (std::string_view(file) == "config.json") write_raw(folder.path() / "model.safetensors", kPointer);
    EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }), AllOf(HasSubstr(file), is_pointer));
  }
}

TEST(HuggingFace, OtherFileKindsAreReported) {
  const TempFolder folder;
  write_raw(folder.path() / "config.json", "[model]\ntype = \"llama\"\n");
  write_raw(folder.path() / "model.safetensors", "GGUF\3");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }),
              HasSubstr("must be JSON; got a TOML or INI file"));
  write_raw(folder.path() / "config.json", "{}");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }),
              HasSubstr("must be a valid safetensors file; got a GGUF file"));
  write_raw(folder.path() / "model.safetensors", "<!DOCTYPE html>");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }), HasSubstr("got an HTML page"));
}

TEST(HuggingFace, ShardsMatchTheIndex) {
  const TempFolder folder;
  write_raw(folder.path() / "config.json", "{}");
  write_safetensors(folder.path() / "model-1.safetensors", {{"a", at::ones({2})}, {"more", at::ones({1})}});
  const fs::path index = folder.path() / "model.safetensors.index.json";
  write_raw(index, R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }),
              AllOf(HasSubstr("got 1 of 2 missing: model-2.safetensors"), HasSubstr("download them again")));
  write_safetensors(folder.path() / "model-2.safetensors", {{"a", at::ones({2})}});
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }),
              HasSubstr("must hold the tensor 'b', as in"));
  write_safetensors(folder.path() / "model-2.safetensors", {{"a", at::ones({2})}, {"b", at::ones({2})}});
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }),
              HasSubstr("must be in one shard; got 'a' in model-1.safetensors and model-2.safetensors"));
  write_safetensors(folder.path() / "model-2.safetensors", {{"b", at::ones({2})}});
  write_safetensors(folder.path() / "model-3.safetensors", {{"c", at::ones({2})}});
  const CheckpointReader source = CheckpointReader::open(folder);
  EXPECT_EQ(source.names(), (std::vector<std::string>{"a", "b", "more"}));
  EXPECT_EQ(source.unlisted_files(), std::vector<std::string>{"model-3.safetensors"});
}

TEST(HuggingFace, ComposedTensorsAreReadFromTheirParts) {
  const TempFolder folder;
  write_raw(folder.path() / "config.json", "{}");
  const at::Tensor fused = at::arange(2 * 6 * 4, at::kFloat).reshape({2, 6, 4});
  write_safetensors(folder.path() / "model.safetensors", {{"fused", fused}, {"other", at::ones({3})}});
  const CheckpointReader stored = CheckpointReader::open(folder);
  const at::Tensor rows = stored.view("fused").select(0, 1);
  ComposedTensor up{.dtype = at::kFloat, .shape = {6, 4}, .parts = {}, .compute = {}};
  up.parts.push_back({{{0, 0}, {2, 4}}, rows.narrow(0, 4, 2)});
  up.parts.push_back({{{2, 0}, {4, 4}}, rows.narrow(0, 0, 4)});
  ComposedTensor twice{.dtype = at::kFloat, .shape = {3}, .parts = {}, .compute = {}};
  twice.compute = [&stored](const Box& box) {
    return stored.view("other").narrow(0, box.offset[0], box.shape[0]) * 2;
  };
  const CheckpointReader source = stored.with_tensors({{"up", up}, {"twice", twice}});
  EXPECT_EQ(source.names(), (std::vector<std::string>{"twice", "up"}));
  EXPECT_EQ(source.info("up").shape, (Sizes{6, 4}));
  EXPECT_TRUE(at::equal(source.read("up"), fused[1].roll(2, 0)));
  const at::Tensor box = at::zeros({3, 2});
  source.read_into({"up", {6, 4}, {1, 2}, box});
  EXPECT_TRUE(at::equal(box, fused[1].roll(2, 0).slice(0, 1, 4).slice(1, 2, 4)));
  EXPECT_TRUE(at::equal(source.read("twice"), at::full({3}, 2)));
  EXPECT_THAT(message_of([&] { (void)source.read("fused"); }), HasSubstr("must hold the tensor 'fused'"));
}

}  // namespace
}  // namespace colonnade::checkpoint
