// A JPEG or PNG file of up to a million pixels: decoded, resized, cropped.
#include "colonnade/images/clip_image.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  const std::string_view bytes = fuzz::text_of(data, size);
  return fuzz::run([&] {
    const images::RgbImage image = images::read_image({bytes.data(), bytes.size()}, 1 << 20);
    (void)images::resize_and_crop(image, {.shortest_edge = 20, .height = 20, .width = 18});
  });
}
