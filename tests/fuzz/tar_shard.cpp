// A tar shard: its index, with and without skipping, and every sample in it.
#include "colonnade/base/log.h"
#include "colonnade/data/images/shard_samples.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  static const std::string shard = fuzz::file("shard.tar", "");
  fuzz::file("shard.tar", fuzz::text_of(data, size));
  data::ShardSet set{.names = {shard}, .counts = {-1}};
  set.fields = {.image = data::parse_field("", "jpg,png"),
                .caption = data::parse_field("", "txt,json[caption]")};
  const auto all = [&set](data::OnError on_error) {
    return fuzz::take([&] {
      log::set_level(log::Level::kError);
      const data::ShardSamples samples(set, {.on_error = on_error, .max_sample_bytes = 1 << 16});
      for (std::int64_t i = 0; i < samples.size(); ++i) fuzz::take([&] { (void)samples.read(i); });
    });
  };
  all(data::OnError::kStop);
  return all(data::OnError::kSkip);
}
