// A tar shard: its index, with and without skipping errors, and every sample. Header checksums are fixed
// first, because random bytes would never match them.
#include "colonnade/base/log.h"
#include "colonnade/images/shard_samples.h"
#include "fuzz/fuzz.h"

namespace {

std::string with_fixed_checksums(std::string bytes) {
  for (std::size_t at = 0; at + 512 <= bytes.size(); at += 512) {
    if (bytes.compare(at + 257, 5, "ustar") != 0) continue;
    bytes.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(bytes[at + i]);
    bytes.replace(at + 148, 6, fmt::format("{:06o}", sum));
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  static const std::string shard = fuzz::file("shard.tar", "");
  fuzz::file("shard.tar", with_fixed_checksums(std::string(fuzz::text_of(data, size))));
  images::ShardSet set{.names = {shard}, .counts = {-1}};
  set.fields = {.image = images::parse_field("", "jpg,png"),
                .caption = images::parse_field("", "txt,json[caption]")};
  const auto all = [&set](images::OnError on_error) {
    return fuzz::run([&] {
      log::set_level(log::Level::kError);
      const images::ShardSamples samples(set, {.on_error = on_error, .max_sample_bytes = 1 << 16});
      for (std::int64_t i = 0; i < samples.size(); ++i) fuzz::run([&] { (void)samples.read(i); });
    });
  };
  all(images::OnError::kStop);
  return all(images::OnError::kSkip);
}
