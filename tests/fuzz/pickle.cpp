// A Python pickle.
#include "colonnade/pickle/read.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  const std::string_view bytes = fuzz::text_of(data, size);
  return fuzz::run([&] {
    const pickle::Document document =
        pickle::read(std::as_bytes(std::span(bytes.data(), bytes.size())), "fuzz.pkl");
    if (document.root == nullptr || document.values.size() > size) abort();
  });
}
