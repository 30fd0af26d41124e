// config.json of a Hugging Face folder.
#include <nlohmann/json.hpp>

#include "colonnade/models/hf/config.h"
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  const nlohmann::json config =
      nlohmann::json::parse(fuzz::text_of(data, size), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return 0;  // checkpoint::read_json rejects it
  return fuzz::run([&] { (void)models::hf::settings_of(config, "config.json"); });
}
