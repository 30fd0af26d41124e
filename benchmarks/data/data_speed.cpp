// Data loading times; see data_speed.py. Prints one line of JSON.
//
//   data_speed index CACHE SEQ_LENGTH SAMPLES WEIGHT PREFIX [WEIGHT PREFIX ...]
//     builds the indices of a blend
//   data_speed fetch CACHE SEQ_LENGTH SAMPLES PREFIX
//     reads samples in shuffled order, one per batch
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <string>
#include <vector>

#include "colonnade/data/samples/gpt/gpt_batches.h"

namespace {

using namespace colonnade;

/// Wall and CPU seconds since construction.
class Timer {
 public:
  [[nodiscard]] std::string text() const {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - wall_;
    return fmt::format("\"wall_s\": {:.4f}, \"cpu_s\": {:.4f}", wall.count(), cpu_now() - cpu_);
  }

 private:
  static double cpu_now() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  double cpu_ = cpu_now();
};

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> args(words, words + count);
  if (args.size() < 6) {
    fmt::print(stderr, "usage: see the head of data_speed.cpp\n");
    return 2;
  }
  config::Data data;
  data.split = "1,0,0";
  data.data_cache_path = args[2];
  data.data_path.assign(args.begin() + 5, args.end());
  const std::int64_t seq = std::stoll(args[3]), samples = std::stoll(args[4]);
  const data::TokenIds ids{.vocab_size = 32768, .eod = 0};
  const Timer open;
  const auto sources = data::open_gpt_samples(data, {samples, 0, 0}, seq, 1234, ids);
  if (args[1] == "index") {
    fmt::print("{{{}, \"samples\": {}}}\n", open.text(), sources[0]->size());
    return 0;
  }
  const data::GptBatches batches(sources[0],
                                 {.seq_length = seq, .rules = {.eod = 0}, .vocab_size = ids.vocab_size});
  std::int64_t sum = 0;
  const Timer fetch;
  for (std::int64_t i = 0; i < samples; ++i) {
    const data::HostBatch batch = batches.get(i, 1);
    sum += batch.tokens.back() + batch.labels.back();
  }
  fmt::print("{{{}, \"samples\": {}, \"sum\": {}}}\n", fetch.text(), samples, sum);
}
