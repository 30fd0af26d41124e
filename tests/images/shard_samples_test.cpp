// Samples of shards: fields, JSON, and errors.
#include "colonnade/images/shard_samples.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ShardSamplesTest : public testing::Test {
 protected:
  /// Sample 0 of a shard with these members.
  RawSample read(const std::string& members, const ShardOptions& options = {}) {
    write(folder_ / "s.tar", members + tar_end());
    ShardSet set = find_shards({folder_ / "s.tar"}, "train");
    set.fields = fields_;
    return ShardSamples(set, options).read(0);
  }
  std::string error_of(const std::string& members, const ShardOptions& options = {}) {
    return test::message_of<DataError>([&] { (void)read(members, options); });
  }
  test::TempFolder folder_;
  SampleFields fields_{.image = parse_field("", "jpg,png"),
                       .caption = parse_field("", "txt,json[info][captions][1]")};
};

TEST_F(ShardSamplesTest, ContainImageAndCaption) {
  const RawSample text = read(tar_member("d/k.txt", "a c\303\244t") + tar_member("d/k.png", "PNG") +
                              tar_member("d/k.jpg", "JPG"));
  EXPECT_EQ(text.key, "d/k");
  EXPECT_EQ(std::string(text.image().begin(), text.image().end()),
            "JPG");  // the first alternative of the field takes precedence
  EXPECT_THAT(text.answers, ElementsAre("a c\303\244t"));
  EXPECT_EQ(text.prompt, "");
  EXPECT_THAT(text.where, HasSubstr("s.tar, sample d/k at byte 0"));
  const RawSample json =
      read(tar_member("k.png", "PNG") + tar_member("k.json", R"({"info": {"captions": ["x", "a \u00e4"]}})"));
  EXPECT_THAT(json.answers, ElementsAre("a \303\244"));
}

TEST_F(ShardSamplesTest, ContainQuestionAndAnswers) {
  fields_ = {.type = SampleType::kVqa,
             .image = parse_field("", "jpg"),
             .context = parse_field("", "json[q]"),
             .answers = parse_field("", "json[a]")};
  const RawSample both =
      read(tar_member("k.jpg", "J") + tar_member("k.json", R"({"q": "why?", "a": ["x", "y"]})"));
  EXPECT_EQ(both.prompt, "why?");
  EXPECT_THAT(both.answers, ElementsAre("x", "y"));
  EXPECT_THAT(read(tar_member("k.jpg", "J") + tar_member("k.json", R"({"q": "", "a": "z"})")).answers,
              ElementsAre("z"));
  EXPECT_THAT(error_of(tar_member("k.jpg", "J") + tar_member("k.json", R"({"q": "why?", "a": []})")),
              HasSubstr("answers must be one text or more; got 0"));
  EXPECT_THAT(error_of(tar_member("k.jpg", "J") + tar_member("k.json", R"({"q": ["a", "b"], "a": ""})")),
              HasSubstr("context must be one text; got 2"));
}

TEST_F(ShardSamplesTest, ReportErrorsWithShardKeyAndOffset) {
  const std::string image = tar_member("k.jpg", "J");
  EXPECT_THAT(error_of(image),
              AllOf(HasSubstr("s.tar, sample k at byte 0: caption must be present as txt,json[info]"),
                    HasSubstr("got the parts jpg; name another part")));
  EXPECT_THAT(error_of(tar_member("k.txt", "t")),
              HasSubstr("image must be present as jpg,png; got the parts txt"));
  EXPECT_THAT(error_of(image + tar_member("k.txt", "\xff\xfe")), HasSubstr("caption must be UTF-8"));
  EXPECT_THAT(error_of(image + tar_member("k.json", "{\"a\": ")), HasSubstr("json must be JSON; got"));
  EXPECT_THAT(error_of(image + tar_member("k.json", R"({"info": {"captions": ["x"]}})")),
              HasSubstr("must be present as"));
  EXPECT_THAT(error_of(image + tar_member("k.json", R"({"info": {"captions": ["x", 3]}})")),
              HasSubstr("must be present as"));
  EXPECT_THAT(error_of(image + tar_member("k.json", R"({"info": 1})")), HasSubstr("must be present as"));
  EXPECT_THAT(error_of(image + image + tar_member("k.txt", "t")),
              HasSubstr("each part must occur once; got jpg twice"));
  EXPECT_THAT(error_of(image + tar_member("k.txt", "t"), {.max_sample_bytes = 2047}),
              HasSubstr("at most 2047 bytes; got 2048; raise --max-sample-mb"));
}

TEST_F(ShardSamplesTest, LimitTheLengthOfTexts) {
  const std::string image = tar_member("k.jpg", "J"), text(std::size_t{4} << 20, 'a');
  EXPECT_EQ(read(image + tar_member("k.txt", text)).answers[0], text);
  EXPECT_THAT(error_of(image + tar_member("k.txt", text + "a")),
              HasSubstr("caption must have at most 4194304 bytes; got 4194305 in txt"));
}

TEST_F(ShardSamplesTest, DetectAModifiedShard) {
  write(folder_ / "s.tar", tar_member("k.jpg", "J") + tar_member("k.txt", "t") + tar_end());
  const ShardSamples samples(find_shards({folder_ / "s.tar"}, "train"), {});
  write(folder_ / "s.tar", tar_member("k.jpg", "J") + tar_member("j.txt", "t") + tar_end());
  EXPECT_THAT(test::message_of<DataError>([&] { (void)samples.read(0); }),
              HasSubstr("one key; got 'k' and 'j'"));
  write(folder_ / "s.tar", "");
  EXPECT_THAT(test::message_of<DataError>([&] { (void)samples.read(0); }), HasSubstr("got a shorter file"));
}

}  // namespace
}  // namespace colonnade::images
