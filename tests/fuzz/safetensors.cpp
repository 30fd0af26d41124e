// The header of a safetensors file.
#include "colonnade/checkpoint/safetensors.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  const std::string_view bytes = fuzz::text_of(data, size);
  return fuzz::run([&] {
    const checkpoint::SafetensorsHeader header = checkpoint::parse_safetensors(
        std::as_bytes(std::span(bytes.data(), bytes.size())), "fuzz.safetensors");
    for (const auto& [name, tensor] : header.tensors)
      if (tensor.offset + tensor.bytes > size) abort();
  });
}
