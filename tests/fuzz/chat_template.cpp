// A chat template up to a zero byte, then a conversation that it renders.
#include "colonnade/chat_template/chat_template.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace colonnade;
  const std::string_view bytes = fuzz::text_of(data, size);
  const std::string_view source = bytes.substr(0, bytes.find('\0'));
  const std::string_view line = source.size() < size ? bytes.substr(source.size() + 1) : std::string_view();
  return fuzz::run([&] {
    const chat_template::ChatTemplate chat("fuzz", source, {});
    const std::string_view usual =
        R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})";
    (void)chat.chat(chat_template::read_conversation(line.empty() ? usual : line));
  });
}
