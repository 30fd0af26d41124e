// Rows of images and text: ids, labels, pixels; batches are independent of the numbers of ranks and workers.
#include "colonnade/images/image_text.h"

#include <gmock/gmock.h>

#include <set>

#include "colonnade/base/error.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ImageRows : public testing::Test {
 protected:
  /// 30 samples in 3 shards with captions "0 7", "1 7", ... and a vocabulary of 50 ids, the last of which is
  /// EOD.
  void SetUp() override {
    const std::vector<std::string> names{"rgb_420.jpg", "rgb.png", "grey.jpg", "palette.png"};
    for (int shard = 0; shard < 3; ++shard) {
      std::string bytes;
      for (int i = 10 * shard; i < 10 * shard + 10; ++i) {
        const std::string& name = names[static_cast<std::size_t>(i) % names.size()];
        bytes += tar_member(fmt::format("{:03}.{}", i, name.substr(name.size() - 3)),
                            i == corrupt_ ? "corrupt" : image_bytes(name));
        bytes += tar_member(fmt::format("{:03}.txt", i), fmt::format("{} 7", i));
      }
      write(folder_ / fmt::format("{}.tar", shard), bytes + tar_end());
    }
    plan_.seq_length = 6;
    plan_.image_tokens = 2;
    plan_.pad = 48;
    plan_.block = 4;
    plan_.window = 3;
    plan_.image = {.shortest_edge = 16, .height = 16, .width = 16};
  }
  std::shared_ptr<const ImageTextSamples> open() {
    return std::make_shared<ImageTextSamples>(
        std::make_shared<const ShardSamples>(find_shards({folder_ / ""}, "train"), ShardOptions{}),
        tokenizer_, plan_);
  }
  /// A data set of a single VQA sample.
  std::shared_ptr<const ImageTextSamples> vqa(const std::string& json) {
    write(folder_ / "q/q.tar",
          tar_member("k.png", image_bytes("rgb.png")) + tar_member("k.json", json) + tar_end());
    ShardSet set = find_shards({folder_ / "q/q.tar"}, "train");
    set.fields = {.type = SampleType::kVqa,
                  .image = parse_field("", "png"),
                  .context = parse_field("", "json[q]"),
                  .answers = parse_field("", "json[a]")};
    return std::make_shared<ImageTextSamples>(std::make_shared<const ShardSamples>(set, ShardOptions{}),
                                              tokenizer_, plan_);
  }
  std::vector<ImageBatch> load(const ImageShare& share, int workers, int batches) {
    ImageLoader loader(open(), share, workers);
    std::vector<ImageBatch> all;
    for (int i = 0; i < batches; ++i) all.push_back(loader.next());
    return all;
  }

  int corrupt_ = -1;
  test::TempFolder folder_;
  ImageTextPlan plan_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_ =
      tokenizers::make_tokenizer({.type = "NullTokenizer", .model = "", .vocab_size = 50});
};

TEST_F(ImageRows, ConsistOfPlaceholdersCaptionAndEod) {
  const auto samples = open();
  for (std::int64_t number : {0, 5, 29, 30, 1000}) {
    const ImageText row = samples->get(number);
    EXPECT_EQ(row.sample, samples->order()(number));
    EXPECT_THAT(row.tokens, ElementsAre(-200, -200, row.sample, 7, tokenizer_->eod(), 48));
    EXPECT_THAT(row.labels, ElementsAre(0, row.sample, 7, tokenizer_->eod(), 0, 0));
    EXPECT_THAT(row.loss_mask, ElementsAre(0, 1, 1, 1, 0, 0));
    EXPECT_THAT(row.image_starts, ElementsAre(0));
    EXPECT_EQ(row.pixels.size(), 3U * 16 * 16);
  }
  // Sample 1 is rgb.png: its pixels equal those of the file.
  std::int64_t number = 0;
  while (samples->order()(number) != 1) ++number;
  std::vector<float> expected(plan_.image.values());
  to_pixels(resize_and_crop(read_image(image_bytes("rgb.png"), 1 << 20), plan_.image), plan_.image, expected);
  EXPECT_EQ(samples->get(number).pixels, expected);
}

TEST_F(ImageRows, TruncateLongCaptions) {
  plan_.seq_length = 3;
  const ImageText row = open()->get(0);
  EXPECT_THAT(row.tokens, ElementsAre(-200, -200, row.sample));
  EXPECT_THAT(row.labels, ElementsAre(0, row.sample, 7));
}

TEST_F(ImageRows, InsertTheImageAtItsPlaceholder) {
  plan_.seq_length = 8;
  EXPECT_THAT(vqa(R"({"q": "1 <image> 2", "a": "3"})")->get(0).tokens,
              ElementsAre(1, -200, -200, 2, 3, 49, 48, 48));
  EXPECT_THAT(vqa(R"({"q": "1 <image> 2", "a": "3"})")->get(0).image_starts, ElementsAre(1));
  EXPECT_THAT(vqa(R"({"q": "1 2", "a": "3"})")->get(0).loss_mask, ElementsAre(0, 0, 0, 1, 1, 0, 0, 0));
  EXPECT_THAT(
      test::message_of<DataError>([&] { (void)vqa(R"({"q": "<image> <image>", "a": "3"})")->get(0); }),
      HasSubstr("<image> at most once"));
  EXPECT_THAT(test::message_of<DataError>([&] { (void)vqa(R"({"q": "1 2 3 4 5 6 7", "a": "3"})")->get(0); }),
              HasSubstr("leave space for an answer; got 9 ids of 9"));
}

TEST_F(ImageRows, SampleAnAnswerBySampleIndex) {
  const auto samples = vqa(R"({"q": "1", "a": ["2", "3", "4"]})");
  std::array<int, 5> drawn{};
  for (std::int64_t number = 0; number < 60; ++number) {
    const auto answer = static_cast<std::size_t>(samples->get(number).tokens[3]);
    ++drawn.at(answer);
    EXPECT_EQ(samples->get(number).tokens[3], static_cast<std::int64_t>(answer));
  }
  for (std::size_t answer = 2; answer < 5; ++answer) EXPECT_GT(drawn.at(answer), 8);
}

TEST_F(ImageRows, AreIndependentOfRanksWorkersAndResuming) {
  const std::vector<ImageBatch> one = load({.micro_batch = 1}, 0, 48);
  for (const int ranks : {1, 2, 4})
    for (const int workers : {0, 1, 7})
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t first = 12;  // a run resumed after 12 samples
        const auto batches =
            load({.first = first, .micro_batch = 3, .rank = rank, .ranks = ranks}, workers, 12 / ranks);
        for (std::size_t m = 0; m < batches.size(); ++m)
          for (std::size_t b = 0; b < 3; ++b) {
            const auto number = static_cast<std::size_t>(batches[m].numbers[b]);
            EXPECT_EQ(number,
                      12 + (m * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank)) * 3 + b);
            EXPECT_EQ(batches[m].samples[b], one[number].samples[0]);
            EXPECT_TRUE(
                std::ranges::equal(std::span(batches[m].tokens).subspan(6 * b, 6), one[number].tokens));
            EXPECT_TRUE(
                std::ranges::equal(std::span(batches[m].pixels).subspan(768 * b, 768), one[number].pixels));
          }
      }
}

TEST_F(ImageRows, CountAndLocateImagesInBatches) {
  const ImageBatch batch = load({.micro_batch = 3}, 2, 1).front();
  EXPECT_THAT(batch.image_counts, ElementsAre(1, 1, 1));
  EXPECT_THAT(batch.image_starts, ElementsAre(0, 6, 12));
  EXPECT_EQ(batch.tokens.size(), 18U);
  EXPECT_EQ(batch.pixels.size(), 3U * 768);
}

TEST_F(ImageRows, StopAtCorruptImage) {
  corrupt_ = 13;
  SetUp();
  for (const int workers : {0, 3}) {
    ImageLoader loader(open(), {.micro_batch = 2}, workers);
    const auto all = [&loader] {
      for (int i = 0; i < 15; ++i) (void)loader.next();
    };
    for (int again = 0; again < 2; ++again)  // the error is permanent
      EXPECT_THAT(test::message_of<DataError>(all),
                  AllOf(HasSubstr("1.tar, sample 013 at byte"),
                        HasSubstr("must be JPEG or PNG; got something else")));
    EXPECT_THROW((void)loader.next(), DataError);
  }
}

TEST_F(ImageRows, AreReplacedByTheNextSampleWithSkip) {
  const std::vector<ImageBatch> intact = load({}, 0, 32);
  corrupt_ = 13;
  SetUp();
  plan_.on_error = OnError::kSkip;
  const auto samples = open();
  for (const int workers : {0, 5}) {
    ImageLoader loader(samples, {}, workers);
    for (std::size_t n = 0; n < 30; ++n) {
      const ImageBatch row = loader.next();
      EXPECT_EQ(row.samples[0], intact[n].samples[0] == 13 ? intact[n + 1].samples[0] : intact[n].samples[0]);
    }
  }
  EXPECT_GE(samples->skipped(), 2);
}

TEST_F(ImageRows, FailAfterHundredConsecutiveCorruptSamples) {
  plan_.on_error = OnError::kSkip;
  const ShardOrder order(150, plan_.seed, plan_.block, plan_.window);
  const auto read = [&](std::int64_t num_corrupt) {  // samples at the start of the run
    std::set<std::int64_t> corrupt;
    for (std::int64_t n = 0; n < num_corrupt; ++n) corrupt.insert(order(n));
    std::string bytes;
    for (int i = 0; i < 150; ++i)
      bytes +=
          tar_member(fmt::format("{}.jpg", i), corrupt.contains(i) ? "corrupt" : image_bytes("grey.jpg")) +
          tar_member(fmt::format("{}.txt", i), "7");
    write(folder_ / "w/w.tar", bytes + tar_end());
    const ImageTextSamples samples(
        std::make_shared<const ShardSamples>(find_shards({folder_ / "w/w.tar"}, "train"), ShardOptions{}),
        tokenizer_, plan_);
    return samples.get(0).sample;
  };
  EXPECT_EQ(read(99), order(99));
  EXPECT_THAT(
      test::message_of<DataError>([&] { (void)read(100); }),
      AllOf(
          HasSubstr(
              "--on-error skip: samples must be readable; got 100 unreadable ones in a row from number 0 of the run"),
          HasSubstr(fmt::format("sample {} at byte", order(99))),
          HasSubstr("got something else; fix or remove")));
}

TEST_F(ImageRows, RequireSufficientSeqLength) {
  plan_.seq_length = 2;
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)open(); }), HasSubstr("--seq-length must be above"));
  plan_.seq_length = 6;
  plan_.image.height = 17;
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)open(); }), HasSubstr("cropped to no more"));
}

}  // namespace
}  // namespace colonnade::images
