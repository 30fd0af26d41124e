// Floor F: lower bound on the time of a Llama training step on this machine, from its matmuls through
// LibTorch plus the optimizer's memory traffic at copy bandwidth. Time beyond it is overhead. Prints one JSON
// object.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <vector>

#include "colonnade/ops/linear.h"
#include "colonnade/tensor/counting_allocator.h"

namespace {

namespace ops = colonnade::ops;

using at::Tensor;

struct Shape {
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, seq = 0, vocab = 0, micro_batch = 0;

  [[nodiscard]] std::int64_t tokens() const { return seq * micro_batch; }
  [[nodiscard]] std::int64_t head_dim() const { return hidden / heads; }
  [[nodiscard]] std::int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim(); }
};

/// y = x w^T with its two gradients, through the faster library; every layer has separate memory, as in a
/// model.
struct Linear {
  Linear(std::int64_t tokens, std::int64_t in, std::int64_t out)
      : x(at::randn({tokens, in})),
        w(at::randn({out, in})),
        dy(at::randn({tokens, out})),
        grad_w(at::zeros({out, in})) {}
  Tensor x, w, dy, grad_w;

  void forward() const { ops::linear_forward(x, w); }
  void backward() {
    ops::linear_input_grad(dy, w);
    at::mm_out(grad_w, dy.t(), x);
  }
};

double seconds(const auto& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Median time of forward and backward through all linear layers.
double linears(const Shape& s, int repeats) {
  std::vector<Linear> all;
  for (std::int64_t i = 0; i < s.layers; ++i) {
    all.emplace_back(s.tokens(), s.hidden, s.qkv());
    all.emplace_back(s.tokens(), s.hidden, s.hidden);
    all.emplace_back(s.tokens(), s.hidden, 2 * s.ffn);
    all.emplace_back(s.tokens(), s.ffn, s.hidden);
  }
  all.emplace_back(s.tokens(), s.hidden, s.vocab);
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i)
    times.push_back(seconds([&] {
      for (Linear& linear : all) linear.forward();
      for (auto linear = all.rbegin(); linear != all.rend(); ++linear) linear->backward();
    }));
  times.erase(times.begin());  // warm-up: touches new memory
  return median(times);
}

/// Time of the causal attention matmuls: two forward, four backward, at half their full cost because of the
/// mask.
double attention(const Shape& s, int repeats) {
  const std::int64_t b = s.micro_batch * s.heads;
  Tensor q = at::randn({b, s.seq, s.head_dim()}), k = at::randn_like(q), v = at::randn_like(q);
  Tensor scores = at::randn({b, s.seq, s.seq});
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i)
    times.push_back(seconds([&] {
      at::bmm_out(scores, q, k.transpose(1, 2));  // scores, and the probability gradient of equal shape
      at::bmm_out(scores, q, k.transpose(1, 2));
      at::bmm_out(v, scores, k);  // output, and the q, k and v gradients of equal shape
      at::bmm_out(v, scores, k);
      at::bmm_out(v, scores.transpose(1, 2), k);
      at::bmm_out(v, scores.transpose(1, 2), k);
    }));
  times.erase(times.begin());
  return 0.5 * static_cast<double>(s.layers) * median(times);
}

/// Bandwidth in bytes/s, read plus written, of a copy far larger than the caches.
double copy_bandwidth() {
  const Tensor from = at::ones({1 << 26}), to = at::zeros_like(from);
  std::vector<double> times;
  for (int i = 0; i < 5; ++i)
    times.push_back(seconds([&] {
      at::parallel_for(0, from.numel(), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
        std::copy_n(from.const_data_ptr<float>() + begin, end - begin, to.mutable_data_ptr<float>() + begin);
      });
    }));
  return 2 * static_cast<double>(from.nbytes()) / median(times);
}

std::int64_t parameters(const Shape& s) {
  const std::int64_t layer = s.hidden * s.qkv() + s.hidden * s.hidden + 3 * s.hidden * s.ffn + 2 * s.hidden;
  return s.layers * layer + 2 * s.vocab * s.hidden + s.hidden;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Lower bound on the time of a training step: its matmuls, and the memory traffic of the optimizer");
  Shape s;
  int repeats = 8;
  for (const auto& [name, value] : {std::pair{"--layers", &s.layers},
                                    {"--hidden", &s.hidden},
                                    {"--heads", &s.heads},
                                    {"--kv-heads", &s.kv_heads},
                                    {"--ffn", &s.ffn},
                                    {"--seq", &s.seq},
                                    {"--vocab", &s.vocab},
                                    {"--micro-batch", &s.micro_batch}})
    app.add_option(name, *value)->required()->check(CLI::PositiveNumber);
  app.add_option("--steps", repeats)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  colonnade::tensor::count_cpu_memory();  // avoids page faults in timed code, as in a training run
  const at::NoGradGuard no_grad;
  const double matrix = linears(s, repeats);
  const double scores = attention(s, repeats);
  const double bandwidth = copy_bandwidth();
  // AdamW in fp32 reads parameter, gradient and two moments and writes all but the gradient.
  const double optimizer = 28.0 * static_cast<double>(parameters(s)) / bandwidth;
  const double total = matrix + scores + optimizer;
  fmt::print(
      R"({{"name": "floor F", "tokens_per_s": {:.1f}, "median_ms": {:.3f}, "linears_ms": {:.3f}, "attention_ms": {:.3f}, )"
      R"("optimizer_ms": {:.3f}, "copy_gb_per_s": {:.2f}, "parameters": {}, "peak_mb": 0}})"
      "\n",
      static_cast<double>(s.tokens()) / total, total * 1e3, matrix * 1e3, scores * 1e3, optimizer * 1e3,
      bandwidth / 1e9, parameters(s));
  return 0;
}
