// Bandwidth of the memory-bound fp32 CPU kernels, compared with a plain copy: a kernel near the rate of
// `copy` costs no more than its unavoidable memory traffic. Each array counts once per pass, for reads and
// writes alike.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>

#include "colonnade/kernels/activation.h"
#include "colonnade/kernels/dropout.h"
#include "colonnade/kernels/norm.h"
#include "colonnade/kernels/optimizer.h"
#include "colonnade/kernels/rotary.h"
#include "colonnade/kernels/vocab_loss.h"

namespace colonnade::kernels {
namespace {

using Floats = std::vector<float>;

Floats random(std::int64_t n) {
  std::mt19937 bits(1);
  std::uniform_real_distribution<float> uniform(-2, 2);
  Floats x(static_cast<std::size_t>(n));
  for (float& value : x) value = uniform(bits);
  return x;
}

void set_bytes(benchmark::State& state, std::int64_t floats) {
  state.SetBytesProcessed(state.iterations() * floats * std::int64_t{sizeof(float)});
}

constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kCols = 1024;
constexpr std::int64_t kSize = kRows * kCols;

// Upper bound: parallel copy with one read and one write.
void copy(benchmark::State& state) {
  const Floats x = random(kSize);
  Floats y(x.size());
  for (auto _ : state) {
    cpu::rotary<float>({x.data(),
                        {kCols, 0, 0},
                        y.data(),
                        {kCols, 0, 0},
                        kRows,
                        1,
                        1,
                        kCols,
                        0,
                        nullptr,
                        nullptr,
                        nullptr,
                        false,
                        false});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * kSize);
}
BENCHMARK(copy);

void rms_norm(benchmark::State& state) {
  const Floats x = random(kSize), weight = random(kCols);
  Floats y(x.size()), rstd(kRows);
  for (auto _ : state) {
    cpu::norm<float>({x.data(), nullptr, weight.data(), nullptr, nullptr, y.data(), nullptr, rstd.data(),
                      kRows, kCols, 1e-5, false});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * kSize);
}
BENCHMARK(rms_norm);

void rms_norm_grad(benchmark::State& state) {
  const Floats x = random(kSize), weight = random(kCols), rstd(kRows, 1.F), grad_y = random(kSize);
  Floats grad_x(x.size()), grad_weight(kCols), partial(2 * column_blocks(kRows) * kCols);
  for (auto _ : state) {
    cpu::norm_grad<float>({x.data(), weight.data(), nullptr, rstd.data(), grad_y.data(), nullptr,
                           grad_x.data(), grad_weight.data(), nullptr, partial.data(), kRows, kCols, false});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 3 * kSize);
}
BENCHMARK(rms_norm_grad);

void swiglu(benchmark::State& state) {
  const Floats x = random(2 * kSize);
  Floats y(kSize);
  for (auto _ : state) {
    cpu::activation<float>({ActivationKind::kSwiglu, x.data(), nullptr, y.data(), kRows, kCols});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 3 * kSize);
}
BENCHMARK(swiglu);

void swiglu_grad(benchmark::State& state) {
  const Floats x = random(2 * kSize), grad_y = random(kSize);
  Floats grad_x(2 * kSize);
  for (auto _ : state) {
    cpu::activation_grad<float>(
        {ActivationKind::kSwiglu, x.data(), nullptr, grad_y.data(), grad_x.data(), kRows, kCols});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 5 * kSize);
}
BENCHMARK(swiglu_grad);

void gelu_erf(benchmark::State& state) {
  const Floats x = random(kSize), bias = random(kCols);
  Floats y(kSize);
  for (auto _ : state) {
    cpu::activation<float>({ActivationKind::kGeluErf, x.data(), bias.data(), y.data(), kRows, kCols});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * kSize);
}
BENCHMARK(gelu_erf);

void dropout(benchmark::State& state) {
  const Floats x = random(kSize), residual = random(kSize);
  Floats y(kSize);
  const std::int64_t sample = 3;
  for (auto _ : state) {
    cpu::dropout<float>({x.data(),
                         nullptr,
                         residual.data(),
                         y.data(),
                         {1, kRows, 1},
                         {0, 1, 0},
                         {0, 0, 1},
                         &sample,
                         0,
                         0,
                         kCols,
                         kCols / 4,
                         7,
                         static_cast<std::uint32_t>(state.range(0)),
                         1.0});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 3 * kSize);
}
BENCHMARK(dropout)->ArgName("threshold")->Arg(0)->Arg(1 << 21);

// The shape of split_rotary: [s, b, n, d] rows to [b, n, s, d].
void rotary(benchmark::State& state) {
  constexpr std::int64_t kS = 512, kB = 8, kN = 16, kD = 64;
  const Floats x = random(kSize), cos = random(kS * kD / 2), sin = random(kS * kD / 2);
  Floats y(kSize);
  for (auto _ : state) {
    cpu::rotary<float>({x.data(),
                        {kB * kN * kD, kN * kD, kD},
                        y.data(),
                        {kD, kN * kS * kD, kS * kD},
                        kS,
                        kB,
                        kN,
                        kD,
                        kD,
                        cos.data(),
                        sin.data(),
                        nullptr,
                        false,
                        false});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * kSize);
}
BENCHMARK(rotary);

constexpr std::int64_t kTokens = 256;
constexpr std::int64_t kVocab = 50304;

void logit_stats(benchmark::State& state) {
  const Floats logits = random(kTokens * kVocab);
  const std::vector<std::int64_t> targets(kTokens, 77);
  Floats max(kTokens), sum(kTokens), target(kTokens);
  for (auto _ : state) {
    cpu::logit_stats<float>(
        {logits.data(), targets.data(), max.data(), sum.data(), target.data(), kTokens, kVocab, kVocab, 0});
    benchmark::ClobberMemory();
  }
  set_bytes(state, kTokens * kVocab);
}
BENCHMARK(logit_stats);

void logit_gradient(benchmark::State& state) {
  Floats logits = random(kTokens * kVocab);
  const std::vector<std::int64_t> targets(kTokens, 77);
  const Floats max(kTokens, 1.F), sum(kTokens, 1e5F), grad(kTokens, 1e-3F);
  for (auto _ : state) {
    cpu::logit_gradient<float>(
        {logits.data(), targets.data(), max.data(), sum.data(), grad.data(), kTokens, kVocab, kVocab, 0});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 2 * kTokens * kVocab);
}
BENCHMARK(logit_gradient);

// Reads param, grad, m and v; writes param, m and v.
void adam(benchmark::State& state) {
  constexpr std::int64_t kParams = 1 << 24;
  const Floats grad = random(kParams);
  Floats param = random(kParams), m(kParams), v(kParams);
  const std::vector<AdamSpan<float>> spans{{param.data(), grad.data(), m.data(), v.data(), kParams}};
  for (auto _ : state) {
    cpu::adam(spans, AdamStep{.lr = 1e-3, .weight_decay = 0.1, .bias1 = 0.1, .bias2 = 0.001});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 7 * kParams);
}
BENCHMARK(adam);

// The same with moments in bf16.
void adam_bf16_states(benchmark::State& state) {
  constexpr std::int64_t kParams = 1 << 24;
  const Floats grad = random(kParams);
  Floats param = random(kParams);
  std::vector<BFloat16> m(kParams), v(kParams);
  const StoredAdamSpans spans{{.param = {param.data()},
                               .m = {m.data(), nullptr, StoredType::kBFloat16},
                               .v = {v.data(), nullptr, StoredType::kBFloat16},
                               .grad = grad.data(),
                               .grad_type = StoredType::kFloat32,
                               .n = kParams}};
  for (auto _ : state) {
    cpu::stored_adam(spans, AdamStep{.lr = 1e-3, .weight_decay = 0.1, .bias1 = 0.1, .bias2 = 0.001});
    benchmark::ClobberMemory();
  }
  set_bytes(state, 5 * kParams);
}
BENCHMARK(adam_bf16_states);

void sum_squares(benchmark::State& state) {
  const Floats x = random(kSize);
  for (auto _ : state) benchmark::DoNotOptimize(cpu::sum_squares(x.data(), kSize));
  set_bytes(state, kSize);
}
BENCHMARK(sum_squares);

}  // namespace
}  // namespace colonnade::kernels
