// Which shards make a data set: Energon's metadata, folders, patterns.
#include "colonnade/data/images/shards.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "data/image_vectors.h"

namespace colonnade::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ShardBraces, ExpandAsBraceexpandDoes) {
  EXPECT_THAT(expand_braces("s-{08..11}.tar"), ElementsAre("s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"));
  EXPECT_THAT(expand_braces("{3..1}"), ElementsAre("3", "2", "1"));
  EXPECT_THAT(expand_braces("{a,b{1..2}}{x,y}"), ElementsAre("ax", "ay", "b1x", "b1y", "b2x", "b2y"));
  EXPECT_THAT(expand_braces("plain"), ElementsAre("plain"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)expand_braces("a{1..2"); }),
              HasSubstr("each { must have its }"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)expand_braces("{1..9999999}"); }),
              HasSubstr("1000000 words"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)expand_braces("{1..9999}{1..9999}"); }),
              HasSubstr("1000000 words"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)expand_braces("{" + std::string(5000, ',')); }),
              HasSubstr("4096"));
}

TEST(FieldPaths, AreWrittenAsEnergonDoes) {
  const Field field = parse_field("image", "json[a][0],png");
  ASSERT_EQ(field.size(), 2U);
  EXPECT_EQ(field[0].part, "json");
  EXPECT_THAT(field[0].keys, ElementsAre("a", "0"));
  EXPECT_EQ(field[1].part, "png");
  EXPECT_THAT(message_of<ConfigError>([] { (void)parse_field("--image", "jpg["); }),
              HasSubstr("--image: must be parts"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)parse_field("--image", ""); }), HasSubstr("must be parts"));
  EXPECT_THAT(message_of<ConfigError>([] { (void)parse_field("--caption", "txt[a]"); }),
              HasSubstr("only a JSON part"));
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
  std::string refusal(const std::string& split = "train") {
    return message_of<Error>([&] { (void)find(split); });
  }
  static constexpr const char* kSplit =
      "exclude: ['parts/b-1.tar/000{1..2}', parts/a-0.tar]\nsplit_parts:\n  train: ['parts/b-{0..1}.tar', "
      "parts/a-0.tar]\n  val: [parts/a-0.tar]\n";
  static constexpr const char* kCaptions =
      "sample_type:\n  __module__: megatron.energon\n  __class__: CaptioningSample\nfield_map:\n  image: jpg\n  caption: "
      "json[text][0]\n";
  TempFolder folder_;
};

TEST_F(Shards, AreThoseOfAFolderByName) {
  const ShardSet set = find();
  EXPECT_THAT(set.names, ElementsAre("parts/a-0.tar", "parts/b-0.tar", "parts/b-1.tar"));
  EXPECT_THAT(set.counts, ElementsAre(-1, -1, -1));
  EXPECT_EQ(set.fields.image.size(), 3U);
  EXPECT_THAT(refusal("val"), HasSubstr("--split: only a folder that Energon prepared"));
  EXPECT_THAT(message_of<DataError>([&] { (void)find_shards({folder_ / ".nothing"}, "train"); }),
              HasSubstr("no such file"));
}

TEST_F(Shards, AreThoseOfPatternsInTheirOrder) {
  const ShardSet set = find_shards({folder_ / "parts/b-{1,0}.tar", folder_ / "parts/a*"}, "train");
  EXPECT_THAT(set.names,
              ElementsAre(folder_ / "parts/b-1.tar", folder_ / "parts/b-0.tar", folder_ / "parts/a-0.tar"));
  EXPECT_THAT(message_of<DataError>([&] { (void)find_shards({folder_ / "parts/b-{0..2}.tar"}, "train"); }),
              HasSubstr("b-2.tar: must name tar shards"));
}

TEST_F(Shards, AreWhatEnergonSays) {
  prepare(kCaptions);
  const ShardSet set = find();
  EXPECT_THAT(set.names, ElementsAre("parts/b-0.tar", "parts/b-1.tar"));
  EXPECT_THAT(set.counts, ElementsAre(4, 5));
  EXPECT_TRUE(set.excluded.contains("parts/b-1.tar/0002"));
  EXPECT_EQ(set.fields.image[0].part, "jpg");
  EXPECT_THAT(set.fields.caption[0].keys, ElementsAre("text", "0"));
  EXPECT_THAT(refusal("test"), HasSubstr("must be one of train val that"));
  prepare(
      "sample_type: {__class__: VQASample}\nfield_map: {image: jpg, context: 'json[q]', answers: 'json[a]'}\n");
  EXPECT_EQ(find().fields.type, SampleType::kVqa);
  prepare(
      "__class__: CaptioningWebdataset\n__module__: megatron.energon\nfield_map: {image: png, caption: txt}\n");
  EXPECT_EQ(find().fields.image[0].part, "png");
}

TEST_F(Shards, RefuseMetadataThatAskForMore) {
  prepare("__class__: CrudeWebdataset\n");
  EXPECT_THAT(refusal(), HasSubstr("sample_type must be CaptioningSample or VQASample; got CrudeWebdataset"));
  prepare("sample_type: {__class__: InterleavedSample}\n");
  EXPECT_THAT(refusal(), HasSubstr("got InterleavedSample"));
  prepare(std::string(kCaptions) + "sample_loader: sample_loader.py:f\n");
  EXPECT_THAT(refusal(), HasSubstr("got sample_loader, which is Python code"));
  prepare(std::string(kCaptions) + "subflavors: {a: b}\n");
  EXPECT_THAT(refusal(), HasSubstr("no subflavors"));
  prepare(
      "sample_type: {__class__: VQASample}\nfield_map: {image: jpg, context: txt, answers: 'json[a]', answer_weights: "
      "'json[w]'}\n");
  EXPECT_THAT(refusal(), HasSubstr("got answer_weights; remove it"));
  prepare("sample_type: {__class__: CaptioningSample}\nfield_map: {image: jpg}\n");
  EXPECT_THAT(refusal(), HasSubstr("field_map must name a part for caption"));
}

TEST_F(Shards, RefuseBrokenMetadata) {
  prepare("sample_type: [\n");
  EXPECT_THAT(refusal(), HasSubstr("must be YAML or JSON"));
  prepare("sample_type: 3\nfield_map: []\n");
  EXPECT_THAT(refusal(), HasSubstr("as `energon prepare` writes it"));
  prepare(kCaptions, "split_parts: {train: [parts/c.tar]}");
  EXPECT_THAT(refusal(), HasSubstr("got none for parts/c.tar"));
  prepare(kCaptions);
  EXPECT_THAT(refusal("val"), HasSubstr("the split val must hold shards; got none")) << "all are excluded";
  std::filesystem::remove(folder_ / ".nv-meta/.info.json");
  EXPECT_THAT(refusal(), HasSubstr("must hold .info.json; got none; run `energon prepare`"));
}

}  // namespace
}  // namespace colonnade::data
