// Memory use of many workers with large samples and large images.
#include <gmock/gmock.h>
#include <png.h>

#include "colonnade/images/image_text.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

constexpr int kWorkers = 8;

/// A value of /proc/self/status in KiB.
std::int64_t status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1));
  return -1;
}

/// Peak growth of the resident set during `work`, in MiB.
template <typename Work>
std::int64_t peak_growth(const Work& work) {
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak to the current size
  const std::int64_t before = status("VmRSS");
  work();
  return (status("VmHWM") - before) >> 10;
}

/// A grey PNG of `edge` x `edge` pixels of one value.
std::string flat_png(png_uint_32 edge) {
  const std::vector<std::uint8_t> pixels(std::size_t{edge} * edge);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = edge;
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr);
  return bytes;
}

class ImageMemory : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers do not return freed memory";
#endif
    if (!(std::ofstream("/proc/self/clear_refs") << "5").flush())
      GTEST_SKIP() << "the system does not support resetting the peak memory";
    plan_ = {.seq_length = 6, .image = {.shortest_edge = 16, .height = 16, .width = 16}};
  }
  /// A sample for each worker: an image followed by `zeros` bytes, written as a sparse file.
  void write_samples(const std::string& image, std::int64_t zeros) {
    std::ofstream file(folder_ / "s.tar", std::ios::binary);
    for (int i = 0; i < kWorkers; ++i) {
      const std::int64_t size = static_cast<std::int64_t>(image.size()) + zeros;
      file << tar_header(fmt::format("{}.png", i), octal(static_cast<std::size_t>(size))) << image;
      file.seekp((size + 511) / 512 * 512 - static_cast<std::int64_t>(image.size()), std::ios::cur);
      file << tar_member(fmt::format("{}.txt", i), "7");
    }
    file << tar_end();
  }
  /// Peak growth while each sample is read once, in MiB.
  std::int64_t growth_while_reading() {
    const auto samples = std::make_shared<ImageTextSamples>(
        std::make_shared<const ShardSamples>(find_shards({folder_ / "s.tar"}, "train"), ShardOptions{}),
        tokenizers::make_tokenizer({.type = "NullTokenizer", .model = "", .vocab_size = 50}), plan_);
    return peak_growth([&] {
      ImageLoader loader(samples, {}, kWorkers);
      for (int i = 0; i < kWorkers; ++i) EXPECT_EQ(loader.next().tokens[1], 7);
    });
  }
  test::TempFolder folder_;
  ImageTextPlan plan_;
};

TEST_F(ImageMemory, ForReadsIsIndependentOfNumberOfWorkers) {
  write_samples(image_bytes("rgb.png"), 64 << 20);
  plan_.max_read_bytes = 130 << 20;  // two of 64 MiB
  const std::int64_t grown = growth_while_reading();
  EXPECT_GE(grown, 100);  // otherwise the limit was not reached
  EXPECT_LE(grown, 190);
}

TEST_F(ImageMemory, ForDecodingIsIndependentOfNumberOfWorkers) {
  write_samples(flat_png(4000), 0);         // 48 MB of RGB
  plan_.max_decoded_bytes = 2 * 150 << 20;  // two of 9 bytes a pixel
  const std::int64_t grown = growth_while_reading();
  EXPECT_GE(grown, 45);
  EXPECT_LE(grown, 140);
}

TEST_F(ImageMemory, AdmitsOneSampleAboveTheLimit) {
  write_samples(image_bytes("rgb.png"), 1 << 20);
  plan_.max_read_bytes = plan_.max_decoded_bytes = 1;
  EXPECT_LE(growth_while_reading(), 40);
}

}  // namespace
}  // namespace colonnade::images
