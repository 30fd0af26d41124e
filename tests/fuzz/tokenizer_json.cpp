// A tokenizer.json, and texts that it encodes and decodes.
#include "colonnade/tokenizers/tokenizer_json.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  const std::string text(fuzz::text_of(data, size));
  return fuzz::run([&] {
    const tokenizers::HfTokenizer tokenizer(tokenizers::parse_tokenizer_json("fuzz.json", text));
    for (const std::string_view words : {"", " Hello  wörld's 1234\n\n中文 e\u0301\xf0\x9f\x91\xa9 [SEP]</s>",
                                         "aaaaaaaaaaaaaaaabbbbbbbbbbbbbb"}) {
      const auto ids = tokenizer.encode(words);
      (void)tokenizer.decode(ids);
      (void)tokenizer.encode_pair(words, "b", true);
    }
  });
}
