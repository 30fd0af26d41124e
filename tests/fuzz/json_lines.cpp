// JSON lines as `preprocess` reads them, with and without a list of keys, stopping at bad lines or skipping
// them.
#include "colonnade/preprocess/chunk_tokenizer.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  if (size == 0) return 0;
  static const auto tokenizer = tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = 100});
  preprocess::PreprocessOptions options;
  if ((data[0] & 1) != 0) options.json_keys = {"text", "b"};
  options.skip_bad_lines = (data[0] & 2) != 0;
  options.append_eod = (data[0] & 4) != 0;
  corpus::LineChunk chunk;
  chunk.text = fuzz::text_of(data + 1, size - 1);
  return fuzz::run([&] {
    const preprocess::EncodedChunk encoded =
        preprocess::ChunkTokenizer(options, *tokenizer).encode("fuzz.jsonl", chunk);
    if (encoded.keys.size() != options.json_keys.size()) abort();
    for (const preprocess::EncodedTexts& key : encoded.keys) {
      std::size_t ids = 0, sequences = 0;
      for (const std::int32_t length : key.lengths) ids += static_cast<std::size_t>(length);
      for (const std::size_t count : key.sequences) sequences += count;
      if (ids != key.ids.size() || sequences != key.lengths.size()) abort();
    }
  });
}
