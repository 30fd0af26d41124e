// A text file, plain, gzip or zstd, split into lines.
#include "colonnade/corpus/text_reader.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  const std::string path = fuzz::file("text", fuzz::text_of(data, size));
  return fuzz::run([&] {
    corpus::LineReader lines(path, 64);
    corpus::LineChunk chunk;
    // A few bytes may decompress to gigabytes, which is valid: each chunk must stay small.
    for (int i = 0; i < 1000 && lines.next(chunk); ++i)
      if (chunk.text.empty()) abort();
  });
}
