// The shards of a data set: Energon's metadata, folders, patterns.
#include "colonnade/images/shards.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(FieldPaths, FollowEnergonsSyntax) {
  const Field field = parse_field("image", "json[a][0],png");
  ASSERT_EQ(field.size(), 2U);
  EXPECT_EQ(field[0].part, "json");
  EXPECT_THAT(field[0].keys, ElementsAre("a", "0"));
  EXPECT_EQ(field[1].part, "png");
  EXPECT_THAT(test::message_of<ConfigError>([] { (void)parse_field("--image", "jpg["); }),
              HasSubstr("--image must be parts"));
  EXPECT_THAT(test::message_of<ConfigError>([] { (void)parse_field("--image", ""); }),
              HasSubstr("must be parts"));
  EXPECT_THAT(test::message_of<ConfigError>([] { (void)parse_field("--caption", "txt[a]"); }),
              HasSubstr("only a JSON part"));
  for (const char* text :
       {"", ",", "jpg,", "json[]", "json[a", "json[a]b", "json]a", "json[[a]]", "a b", "[a]"})
    EXPECT_THAT(test::message_of<ConfigError>([&] { (void)parse_field("--image", text); }),
                HasSubstr("must be parts"))
        << text;
}

TEST(FieldPaths, AreLimitedInLength) {
  for (const std::string& text :
       {std::string(100'000, 'a'), "json" + std::string(100'000, '['), std::string(100'000, ',')})
    EXPECT_THAT(test::message_of<ConfigError>([&] { (void)parse_field("--image", text); }),
                HasSubstr("at most 4096"));
}

class Shards : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"parts/b-1.tar", "parts/a-0.tar", "parts/b-0.tar", "other.txt"})
      write(folder_ / name, "");
  }
  void prepare(const std::string& dataset, const std::string& split = kSplit) {
    write(folder_ / ".nv-meta/dataset.yaml", dataset);
    write(folder_ / ".nv-meta/split.yaml", split);
    write(
        folder_ / ".nv-meta/.info.json",
        R"({"energon_version": "7.1.0", "shard_counts": {"parts/a-0.tar": 3, "parts/b-0.tar": 4, "parts/b-1.tar": 5}})");
  }
  ShardSet find(const std::string& split = "train") { return find_shards({folder_ / ""}, split); }
  std::string error_of(const std::string& split = "train") {
    return test::message_of<Error>([&] { (void)find(split); });
  }
  static constexpr const char* kSplit =
      "exclude: ['parts/b-1.tar/000{1..2}', parts/a-0.tar]\nsplit_parts:\n  train: ['parts/b-{0..1}.tar', "
      "parts/a-0.tar]\n  val: [parts/a-0.tar]\n";
  static constexpr const char* kCaptions =
      "sample_type:\n  __module__: megatron.energon\n  __class__: CaptioningSample\nfield_map:\n  image: jpg\n  caption: "
      "json[text][0]\n";
  test::TempFolder folder_;
};

TEST_F(Shards, OfAFolderAreSortedByName) {
  const ShardSet set = find();
  EXPECT_THAT(set.names, ElementsAre("parts/a-0.tar", "parts/b-0.tar", "parts/b-1.tar"));
  EXPECT_THAT(set.counts, ElementsAre(-1, -1, -1));
  EXPECT_EQ(set.fields.image.size(), 3U);
  EXPECT_THAT(error_of("val"), HasSubstr("--split requires a folder prepared by Energon"));
  EXPECT_THAT(test::message_of<DataError>([&] { (void)find_shards({folder_ / ".nothing"}, "train"); }),
              HasSubstr("no such file"));
}

TEST_F(Shards, OfPatternsKeepTheOrderOfThePatterns) {
  const ShardSet set = find_shards({folder_ / "parts/b-{1,0}.tar", folder_ / "parts/a*"}, "train");
  EXPECT_THAT(set.names,
              ElementsAre(folder_ / "parts/b-1.tar", folder_ / "parts/b-0.tar", folder_ / "parts/a-0.tar"));
  EXPECT_THAT(
      test::message_of<DataError>([&] { (void)find_shards({folder_ / "parts/b-{0..2}.tar"}, "train"); }),
      HasSubstr("b-2.tar must name tar shards"));
}

TEST_F(Shards, FollowEnergonsMetadata) {
  prepare(kCaptions);
  const ShardSet set = find();
  EXPECT_THAT(set.names, ElementsAre("parts/b-0.tar", "parts/b-1.tar"));
  EXPECT_THAT(set.counts, ElementsAre(4, 5));
  EXPECT_TRUE(set.excluded.contains("parts/b-1.tar/0002"));
  EXPECT_EQ(set.fields.image[0].part, "jpg");
  EXPECT_THAT(set.fields.caption[0].keys, ElementsAre("text", "0"));
  EXPECT_THAT(error_of("test"), HasSubstr("must be one of train val in"));
  prepare(
      "sample_type: {__class__: VQASample}\nfield_map: {image: jpg, context: 'json[q]', answers: 'json[a]'}\n");
  EXPECT_EQ(find().fields.type, SampleType::kVqa);
  prepare(
      "__class__: CaptioningWebdataset\n__module__: megatron.energon\nfield_map: {image: png, caption: txt}\n");
  EXPECT_EQ(find().fields.image[0].part, "png");
}

/// `energon prepare --dataset-yaml-name captions.yaml` writes no dataset.yaml.
TEST_F(Shards, UseTheGivenDatasetYaml) {
  prepare(kCaptions);
  std::filesystem::rename(folder_ / ".nv-meta/dataset.yaml", folder_ / ".nv-meta/captions.yaml");
  EXPECT_THAT(error_of(), HasSubstr("must hold dataset.yaml; got none"));
  const ShardSet set = find_shards({folder_ / ""}, "train", {.dataset_yaml = "captions.yaml"});
  EXPECT_THAT(set.fields.caption[0].keys, ElementsAre("text", "0"));
  EXPECT_THAT(test::message_of<ConfigError>([&] {
                (void)find_shards({folder_ / "parts"}, "train", {.dataset_yaml = "captions.yaml"});
              }),
              HasSubstr("--dataset-yaml requires a folder prepared by Energon"));
}

TEST_F(Shards, LetGivenFieldsOverrideTheMetadata) {
  const SampleFields captions{.image = parse_field("", "png"), .caption = parse_field("", "json[c]")};
  for (const char* yaml : {"__class__: CrudeWebdataset\n",
                           "sample_type: {__class__: CaptioningSample}\nsample_loader: l.py:f\n"}) {
    prepare(yaml);
    const ShardSet set = find_shards({folder_ / ""}, "train", {.fields = captions});
    EXPECT_THAT(set.names, ElementsAre("parts/b-0.tar", "parts/b-1.tar"));
    EXPECT_THAT(set.counts, ElementsAre(4, 5));
    EXPECT_TRUE(set.excluded.contains("parts/b-1.tar/0002"));
    EXPECT_EQ(set.fields.image[0].part, "png");
    EXPECT_THAT(set.fields.caption[0].keys, ElementsAre("c"));
    EXPECT_THAT(error_of(), HasSubstr("name the fields by --image and --caption"));
  }
  const ShardSet questions = find_shards(
      {folder_ / ""}, "train",
      {.fields = {
           .image = captions.image, .context = captions.caption, .answers = parse_field("", "json[a]")}});
  EXPECT_EQ(questions.fields.type, SampleType::kVqa);
  prepare(kCaptions);
  const ShardSet partial = find_shards({folder_ / ""}, "train", {.fields = {.image = captions.image}});
  EXPECT_EQ(partial.fields.image[0].part, "png");
  EXPECT_THAT(partial.fields.caption[0].keys, ElementsAre("text", "0"));
}

TEST_F(Shards, RejectUnsupportedMetadata) {
  prepare("__class__: CrudeWebdataset\n");
  EXPECT_THAT(error_of(),
              HasSubstr("sample_type must be CaptioningSample or VQASample; got CrudeWebdataset"));
  prepare("sample_type: {__class__: InterleavedSample}\n");
  EXPECT_THAT(error_of(), HasSubstr("got InterleavedSample"));
  prepare(std::string(kCaptions) + "sample_loader: sample_loader.py:f\n");
  EXPECT_THAT(error_of(), HasSubstr("got sample_loader, which is Python code"));
  prepare(std::string(kCaptions) + "subflavors: {a: b}\n");
  EXPECT_THAT(error_of(), HasSubstr("no subflavors"));
  prepare(
      "sample_type: {__class__: VQASample}\nfield_map: {image: jpg, context: txt, answers: 'json[a]', answer_weights: "
      "'json[w]'}\n");
  EXPECT_THAT(error_of(), HasSubstr("got answer_weights; remove it"));
  prepare("sample_type: {__class__: CaptioningSample}\nfield_map: {image: jpg}\n");
  EXPECT_THAT(error_of(), HasSubstr("field_map must name a part for caption"));
}

TEST_F(Shards, RejectUnknownKeys) {
  prepare(std::string(kCaptions) + "max_samples_per_sequence: 7\n");
  EXPECT_THAT(error_of(), HasSubstr("dataset.yaml:7 must have no keys but sample_type, field_map"));
  EXPECT_THAT(error_of(), HasSubstr("got max_samples_per_sequence, which is not supported; remove it"));
  prepare("sample_type: {__module__: megatron.energon, __class__: CaptioningSample, a: b}\n");
  EXPECT_THAT(error_of(), HasSubstr("got a, which is not supported"));
  prepare(
      "sample_type: {__module__: mine, __class__: CaptioningSample}\nfield_map: {image: jpg, caption: txt}\n");
  EXPECT_THAT(error_of(), HasSubstr("must be CaptioningSample or VQASample; got mine.CaptioningSample"));
  prepare(kCaptions, "split_parts: {train: [parts/b-0.tar]}\nratio: 3\n");
  EXPECT_THAT(error_of(), HasSubstr("split.yaml:2 must have no keys but split_parts, exclude; got ratio"));
  prepare(kCaptions);
  write(folder_ / ".nv-meta/.info.json",
        R"({"shard_counts": {"parts/b-0.tar": 4, "parts/b-1.tar": 5}, "sizes": {}})");
  EXPECT_THAT(error_of(), HasSubstr("must have no keys but energon_version, shard_counts; got sizes"));
}

TEST_F(Shards, RejectMetadatasets) {
  prepare("__module__: megatron.energon\n__class__: MetadatasetV2\nsplits: {train: {path: ./a}}\n");
  EXPECT_THAT(error_of(), HasSubstr("got MetadatasetV2"));
  for (const char* name : {"blend.yaml", "blend.yml", "list.json", "crude.jsonl"}) {
    write(folder_ / name, "__class__: MetadatasetV2\n");
    EXPECT_THAT(test::message_of<ConfigError>([&] { (void)find_shards({folder_ / name}, "train"); }),
                HasSubstr("name the folder or the shards of one data set"))
        << name;
  }
  EXPECT_THAT(test::message_of<ConfigError>([&] {
                (void)find_shards({folder_ / "parts", folder_ / "parts"}, "train");
              }),
              HasSubstr("got a folder among several arguments"));
}

TEST_F(Shards, AcceptTheDefaultsOfEnergonPrepare) {
  // The keys, in the order, that `energon prepare` of Megatron-Energon 7 writes.
  prepare(
      "sample_type:\n  __module__: megatron.energon\n  __class__: VQASample\nfield_map:\n  image: jpg\n  context: "
      "json[q]\n  answers: txt\n",
      "split_parts:\n  train:\n  - parts/b-{0..1}.tar\n  val: []\n  test: []\nexclude: []\n");
  write(folder_ / ".nv-meta/index.uuid", "0");
  EXPECT_THAT(find().names, ElementsAre("parts/b-0.tar", "parts/b-1.tar"));
}

TEST_F(Shards, RejectHostileMetadata) {
  std::string nested;
  for (int i = 0; i < 300; ++i) nested += "{1..999999}";
  prepare(kCaptions, "split_parts: {train: ['" + nested + "']}");
  EXPECT_THAT(error_of(), HasSubstr("at most 1000000 words"));
  std::string many = "split_parts:\n  train:\n";
  for (int i = 0; i < 20; ++i) many += "  - 'parts/{0..99999}.tar'\n";
  prepare(kCaptions, many);
  EXPECT_THAT(error_of(), HasSubstr("at most 1000000 words")) << "limit of all patterns combined";
  prepare("sample_type: {__class__: CaptioningSample}\nfield_map: {image: '" + std::string(100'000, 'j') +
          "', caption: txt}\n");
  EXPECT_THAT(error_of(), HasSubstr("field_map: image must have at most 4096 characters; got 100000"));
  prepare(std::string(100'000, '['));
  EXPECT_THAT(error_of(), HasSubstr("must be YAML or JSON"));
}

TEST_F(Shards, LimitTheNumberOfMetadataNodes) {
  std::string nodes = "split_parts: {train: [";
  for (int i = 0; i < 2'200'000; ++i) nodes += "a,";
  prepare(kCaptions, nodes + "]}");
  EXPECT_THAT(error_of(), HasSubstr("must have at most 2100000 keys and values"));
}

TEST_F(Shards, RejectInvalidMetadata) {
  prepare("sample_type: [\n");
  EXPECT_THAT(error_of(), HasSubstr("must be YAML or JSON"));
  prepare("sample_type: 3\nfield_map: []\n");
  EXPECT_THAT(error_of(), HasSubstr("as `energon prepare` writes it"));
  prepare(kCaptions, "split_parts: {train: [parts/c.tar]}");
  EXPECT_THAT(error_of(), HasSubstr("got none for parts/c.tar"));
  prepare(kCaptions);
  EXPECT_THAT(error_of("val"), HasSubstr("the split val must hold shards; got none")) << "all are excluded";
  std::filesystem::remove(folder_ / ".nv-meta/.info.json");
  EXPECT_THAT(error_of(), HasSubstr("must hold .info.json; got none; run `energon prepare`"));
}

}  // namespace
}  // namespace colonnade::images
