// See newton_schulz.h.
#include "colonnade/optim/newton_schulz.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/norm.h>

#include "colonnade/base/error.h"

namespace colonnade::optim {
namespace {

constexpr NewtonSchulzStep kSimple[] = {{3.4445, -4.7750, 2.0315}};
constexpr NewtonSchulzStep kQuintic[] = {{4.0848, -6.8946, 2.9270},
                                         {3.9505, -6.3029, 2.6377},
                                         {3.7418, -5.5913, 2.3037},
                                         {2.8769, -3.1427, 1.2046},
                                         {2.8366, -3.0525, 1.2012}};
/// With the safety factor 1.01 of the paper's Algorithm 1.
constexpr NewtonSchulzStep kPolarExpress[] = {{8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184},
                                              {3.9096, -2.8234, 0.5250},   {3.2856, -2.4153, 0.4853},
                                              {2.2779, -1.6198, 0.3985},   {1.8726, -1.2307, 0.3585},
                                              {1.8564, -1.2132, 0.3568},   {1.8750, -1.2500, 0.3750}};
constexpr NewtonSchulzStep kCans[] = {{8.4703, -25.1081, 18.6293},
                                      {4.1828, -3.1087, 0.5806},
                                      {3.9619, -2.9541, 0.5630},
                                      {3.2866, -2.4647, 0.5074},
                                      {2.2737, -1.6447, 0.4162}};
constexpr NewtonSchulzStep kAol[] = {{4.0098, -7.0585, 2.4635},
                                     {3.4585, -5.5479, 2.5959},
                                     {2.7573, -3.2939, 1.4254},
                                     {2.7215, -3.0494, 1.3169}};
constexpr NewtonSchulzStep kFast = kSimple[0], kSlow = {2.0, -1.5, 0.5};
constexpr NewtonSchulzStep kDeepSeekV4[] = {kFast, kFast, kFast, kFast, kFast,
                                            kFast, kFast, kFast, kSlow, kSlow};
/// c = 0: these steps are cubic.
constexpr NewtonSchulzStep kCubic5[] = {{3.3656576, -3.3420992, 0},
                                        {2.5744352, -1.4957376, 0},
                                        {2.5368962, -1.4312570, 0},
                                        {2.4418906, -1.2764040, 0},
                                        {2.2230472, -0.9630650, 0}};

}  // namespace

NewtonSchulzSteps newton_schulz_steps(config::MuonCoefficients coefficients) {
  switch (coefficients) {
    case config::MuonCoefficients::kSimple:
      return {.steps = kSimple};
    case config::MuonCoefficients::kQuintic:
      return {.steps = kQuintic};
    case config::MuonCoefficients::kPolarExpress:
      return {.steps = kPolarExpress, .repeats_last = true};
    case config::MuonCoefficients::kCans:
      return {.steps = kCans, .repeats_last = true};
    case config::MuonCoefficients::kAol:
      return {.steps = kAol};
    case config::MuonCoefficients::kDeepSeekV4:
      return {.steps = kDeepSeekV4, .repeats_last = true};
    case config::MuonCoefficients::kCubic5:
      return {.steps = kCubic5};
  }
  COL_CHECK(false, "coefficients must be known; got {}", static_cast<int>(coefficients));
}

at::Tensor newton_schulz(const at::Tensor& matrix, config::MuonCoefficients coefficients, int num_steps,
                         bool in_bf16) {
  constexpr double kEpsilon = 1e-7;
  COL_CHECK(matrix.dim() == 2, "a matrix must have two dimensions; got {}", matrix.dim());
  const bool transposes = matrix.size(0) > matrix.size(1);
  at::Tensor x = transposes ? matrix.t() : matrix;
  x = x / x.norm().clamp_min(kEpsilon);
  if (in_bf16) x = x.to(at::kBFloat16);
  const NewtonSchulzSteps sequence = newton_schulz_steps(coefficients);
  for (int i = 0; i < num_steps; ++i) {
    const auto [a, b, c] = sequence.at(static_cast<std::size_t>(i));
    const at::Tensor gram = at::mm(x, x.t());
    const at::Tensor factor = c == 0 ? gram.mul(b) : at::addmm(gram, gram, gram, b, c);
    x = at::addmm(x, factor, x, a);
  }
  x = x.to(matrix.scalar_type());
  return transposes ? x.t() : x;
}

}  // namespace colonnade::optim
