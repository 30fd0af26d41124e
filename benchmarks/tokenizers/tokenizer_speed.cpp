// Encodes the lines of a file, each a JSON string, with a tokenizer.json on several threads, and prints
// {"seconds", "cpu_seconds", "bytes", "tokens", "sum"}. `sum` is the sum of position * id, for comparison
// with other encoders. Reading is not timed.
//
//   tokenizer_speed TOKENIZER TEXTS THREADS
#include <fmt/format.h>
#include <simdjson.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "colonnade/base/files.h"
#include "colonnade/tokenizers/tokenizer.h"

/// CPU time of this process in seconds.
static double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int main(int count, char** words) {
  using namespace colonnade;
  if (count != 4) {
    fmt::print(stderr, "usage: tokenizer_speed TOKENIZER TEXTS THREADS\n");
    return 2;
  }
  const auto tokenizer = tokenizers::make_tokenizer({.type = "HuggingFaceTokenizer", .model = words[1]});
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  simdjson::dom::parser parser;
  simdjson::dom::document_stream lines;
  const simdjson::padded_string file(read_file(words[2]));
  if (parser.parse_many(file, std::size_t{1} << 24).get(lines)) return 3;
  for (const auto line : lines) {
    texts.emplace_back(std::string_view(line));
    bytes += texts.back().size();
  }
  std::atomic<std::size_t> next = 0, tokens = 0, sum = 0;
  const double cpu_start = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < std::stoi(words[3]); ++i)
      threads.emplace_back([&] {
        std::size_t own_tokens = 0, own_sum = 0;
        for (std::size_t at = next++; at < texts.size(); at = next++) {
          const std::vector<std::int32_t> ids = tokenizer->encode(texts[at]);
          own_tokens += ids.size();
          for (std::size_t k = 0; k < ids.size(); ++k) own_sum += (k + 1) * static_cast<std::size_t>(ids[k]);
        }
        tokens += own_tokens;
        sum += own_sum;
      });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{{\"seconds\": {:.3f}, \"cpu_seconds\": {:.3f}, \"bytes\": {}, \"tokens\": {}, \"sum\": {}}}\n",
             seconds, cpu_seconds() - cpu_start, bytes, tokens.load(), sum.load());
}
