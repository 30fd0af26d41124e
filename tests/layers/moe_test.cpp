// A mixture of experts over every cut of its experts against its definition, written token by token.
#include "colonnade/layers/moe/moe.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/comm/null_backend.h"
#include "colonnade/comm/thread_ranks.h"
#include "colonnade/config/derive.h"
#include "colonnade/layers/residual.h"
#include "layers/support.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

constexpr std::int64_t kMoeSequence = 8, kMoeBatch = 2, kHidden = 12, kExperts = 4;

config::Model model(config::TokenDispatcher dispatcher) {
  config::Model m;
  m.num_layers = 1;
  m.hidden_size = kHidden;
  m.ffn_hidden_size = 20;
  m.num_attention_heads = m.num_query_groups = 4;
  m.kv_channels = 3;
  m.vocab_size = 32;
  m.activation = config::Activation::kSwiglu;
  m.add_bias_linear = false;
  m.moe.num_experts = kExperts;
  m.moe.ffn_hidden_size = 8;
  m.moe.shared_expert_intermediate_size = 4;
  m.moe.token_dispatcher_type = dispatcher;
  return m;
}

struct Cut {
  int tp, ep, etp, world;
};

std::string text(const Cut& cut) {
  return fmt::format("tp {} ep {} etp {} of {} ranks", cut.tp, cut.ep, cut.etp, cut.world);
}

const std::vector<Cut> kCuts = {{1, 1, 1, 1}, {1, 2, 1, 2}, {1, 4, 1, 4}, {1, 1, 2, 2}, {1, 2, 2, 4},
                                {2, 1, 2, 2}, {2, 2, 1, 2}, {4, 2, 2, 4}, {4, 4, 1, 4}};

/// Runs body(groups, parameters of the layer, context) on every rank of the cut.
template <typename Body>
void on_ranks(const Cut& cut, const config::Model& m, const Body& body) {
  config::Parallel parallel;
  parallel.world_size = cut.world;
  parallel.tensor_model_parallel_size = cut.tp;
  parallel.sequence_parallel = cut.tp > 1;
  parallel.expert_model_parallel_size = cut.ep;
  parallel.expert_tensor_parallel_size = cut.etp;
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const Context context{.tp = ranks.group({layout::Axis::kTp}),
                          .sequence_parallel = cut.tp > 1,
                          .options = test::options(at::kDouble),
                          .experts = ranks.group(layout::model_axes(layout::Family::kExpert)),
                          .expert_tensor = cut.etp,
                          .readers = ranks.world()};
    body(ranks, std::get<layout::MoeParams>(layout::layer_params(m, parallel, 0).mlp), context);
  });
}

Tensor swiglu(const Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

/// Whether token t is among the `most` that its choice j takes, by its definition.
bool has_place(const Tensor& experts, const Tensor& weights, std::int64_t t, std::int64_t j,
               std::int64_t most, config::TokenDropPolicy policy) {
  std::int64_t before = 0;
  for (std::int64_t u = 0; u < experts.size(0); ++u)
    for (std::int64_t i = 0; i < experts.size(1); ++i) {
      if (u == t || experts[u][i].item<std::int64_t>() != experts[t][j].item<std::int64_t>()) continue;
      const bool heavier = weights[u][i].item<double>() > weights[t][j].item<double>();
      if (policy == config::TokenDropPolicy::kPosition ? u < t : heavier) ++before;
    }
  return before < most;
}

/// Of tokens x [n, h] that one router sees, one after the other.
Tensor defined(const Tensor& x, const test::Weights& w, const config::Moe& moe) {
  const auto of = [&](const char* name) { return w.at(std::string("decoder.layers.0.mlp.") + name); };
  const auto [top, experts] = at::matmul(x, of("router.weight").t()).topk(moe.router_topk);
  const Tensor weights = top.softmax(-1), seen = weights.detach();
  const double share = static_cast<double>(experts.numel()) / kExperts;
  const auto most = static_cast<std::int64_t>(std::ceil(share * moe.expert_capacity_factor.value_or(100)));
  std::vector<Tensor> rows;
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    Tensor y = at::matmul(of("shared_experts.linear_fc2.weight"),
                          swiglu(at::matmul(of("shared_experts.linear_fc1.weight"), x[t])));
    for (std::int64_t j = 0; j < moe.router_topk; ++j) {
      if (!has_place(experts, seen, t, j, most, moe.token_drop_policy)) continue;
      const auto e = experts[t][j].item<std::int64_t>();
      y = y + weights[t][j] * at::matmul(of("experts.linear_fc2.weight")[e],
                                         swiglu(at::matmul(of("experts.linear_fc1.weight")[e], x[t])));
    }
    rows.push_back(y);
  }
  return at::stack(rows);
}

/// Tokens of different ranks differ, so a gradient is the sum of what all ranks have of it.
Tensor summed(const Tensor& mine, const comm::Group& world) {
  Tensor sum = mine.clone();
  world.all_reduce(sum, "test").wait();
  return sum;
}

/// This rank's gradient in the place of the whole one; elsewhere zeros.
Tensor spread(const tensor::Parameter& p) {
  Tensor whole = at::zeros(p.spec.shape, at::kDouble);
  for (const layout::Part& part : p.shard.parts)
    tensor::box_of(whole, part.global, part.length)
        .copy_(tensor::box_of(p.main_grad, part.local, part.length));
  return whole;
}

/// Every rank has its own tokens, together those of x: the outcomes, put together, are those of one rank.
void expect_in_cut(const Cut& cut, const config::Model& m) {
  SCOPED_TRACE(text(cut));
  const std::int64_t sequence = kMoeSequence * cut.world / cut.tp;  // data ranks lie one after the other
  const Tensor x = test::named_random("x", {sequence, kMoeBatch, kHidden});
  const auto all = layout::layer_params(m, {}, 0);
  const auto& specs = std::get<layout::MoeParams>(all.mlp);
  std::vector<layout::ParamSpec> list;
  layout::for_each(specs, [&](const layout::ParamSpec& spec) {
    if (!spec.name.ends_with("layernorm.weight") && !spec.name.ends_with("layernorm.bias"))
      list.push_back(spec);
  });
  const test::Expected expected = test::defined(list, x, [&](const Tensor& leaf, const test::Weights& w) {
    std::vector<Tensor> parts;  // of each rank's router
    for (const Tensor& part : leaf.chunk(cut.world, 0))
      parts.push_back(defined(part.reshape({-1, kHidden}), w, m.moe).view(part.sizes()));
    return at::cat(parts);
  });

  on_ranks(cut, m, [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
    Moe moe(params, m, context);
    std::vector<tensor::Parameter*> parameters;
    moe.add_parameters(parameters);
    test::randomize(parameters);
    const auto mine = [&](const Tensor& whole) { return whole.chunk(cut.world, 0)[ranks.rank()]; };
    const Tensor leaf = mine(x).clone().set_requires_grad(true);
    const tensor::Batch none;
    const Tensor y = moe.forward(leaf, {.batch = none});
    EXPECT_LT(test::distance(y, mine(expected.y)), 1e-12) << "output";
    y.backward(mine(test::probe_for(expected.y)));
    EXPECT_LT(test::distance(leaf.grad(), mine(expected.grad_x)), 1e-12) << "gradient of the input";
    for (const tensor::Parameter* p : parameters) {
      EXPECT_LT(test::distance(summed(spread(*p), ranks.world()), expected.grads.at(p->spec.name)), 1e-11)
          << p->spec.name;
    }
  });
}

constexpr config::TokenDispatcher kDispatchers[] = {config::TokenDispatcher::kAllGather,
                                                    config::TokenDispatcher::kAllToAll};

TEST(Moe, GathersTokensInEveryCut) {
  for (const Cut& cut : kCuts) expect_in_cut(cut, model(config::TokenDispatcher::kAllGather));
}

TEST(Moe, ExchangesRowsInEveryCut) {
  for (const Cut& cut : kCuts) expect_in_cut(cut, model(config::TokenDispatcher::kAllToAll));
}

config::Model with_capacity(config::TokenDispatcher dispatcher, double factor, bool filled,
                            config::TokenDropPolicy policy) {
  config::Model m = model(dispatcher);
  m.moe.expert_capacity_factor = factor;
  m.moe.pad_expert_input_to_capacity = filled;
  m.moe.token_drop_policy = policy;
  return m;
}

TEST(Moe, DropsTheSmallestWeightsOverTheCapacityInEveryCut) {
  for (const auto dispatcher : kDispatchers)
    for (const Cut& cut : kCuts)
      expect_in_cut(cut, with_capacity(dispatcher, 0.7, false, config::TokenDropPolicy::kProbs));
}

TEST(Moe, DropsTheLastTokensOverTheCapacityInEveryCut) {
  for (const auto dispatcher : kDispatchers)
    for (const Cut& cut : kCuts)
      expect_in_cut(cut, with_capacity(dispatcher, 0.7, false, config::TokenDropPolicy::kPosition));
}

TEST(Moe, FillsExpertsUpToTheCapacityInEveryCut) {
  for (const auto dispatcher : kDispatchers)
    for (const double factor : {0.7, 1.3, 5.0})
      for (const Cut& cut : {kCuts[0], kCuts[2], kCuts[4], kCuts[7]})
        expect_in_cut(cut, with_capacity(dispatcher, factor, true, config::TokenDropPolicy::kProbs));
}

/// Counts of a rank's tokens, before and after some are dropped; nothing is counted in an evaluation, and
/// nothing dropped while text is generated.
TEST(Moe, CountsTokensOfEachExpert) {
  const config::Model m =
      with_capacity(config::TokenDispatcher::kAllGather, 0.7, false, config::TokenDropPolicy::kPosition);
  const auto params = std::get<layout::MoeParams>(layout::layer_params(m, {}, 0).mlp);
  Router router(params, m, {.options = test::options(at::kDouble)});
  test::randomize({router.weight.get()});
  const Tensor x = test::named_random("x", {kMoeSequence, kMoeBatch, kHidden});
  tensor::Report report;
  const tensor::Batch none;
  const auto all = [](const Tensor& experts) { return at::bincount(experts.reshape(-1), {}, kExperts + 1); };
  static_cast<void>(router.forward(x, {.batch = none, .training = false, .report = &report}));
  EXPECT_TRUE(report.counts.empty());
  const Tensor kept = all(router.forward(x, {.batch = none, .report = &report}).experts);
  tensor::KeyValueCache* cache = reinterpret_cast<tensor::KeyValueCache*>(&report);  // only that it is there
  const Tensor chosen = all(router.forward(x, {.batch = none, .training = false, .cache = cache}).experts);
  EXPECT_EQ(chosen[kExperts].item<std::int64_t>(), 0);
  EXPECT_GT(kept[kExperts].item<std::int64_t>(), 0);
  EXPECT_EQ(kept.narrow(0, 0, kExperts).max().item<std::int64_t>(), 6) << "ceil(16 x 2 / 4 x 0.7)";
  const std::string name = params.router.name;
  EXPECT_TRUE(at::equal(report.counts.at(kExpertTokens + name).view(-1),
                        chosen.narrow(0, 0, kExperts).to(at::kDouble)));
  EXPECT_TRUE(
      at::equal(report.counts.at(kKeptTokens + name).view(-1), kept.narrow(0, 0, kExperts).to(at::kDouble)));
}

TEST(Moe, RoutersReadNoiseInTrainingAlone) {
  const config::Model plain = model(config::TokenDispatcher::kAllGather);
  config::Model noisy = plain;
  noisy.moe.input_jitter_eps = 0.5;
  const auto params = std::get<layout::MoeParams>(layout::layer_params(plain, {}, 0).mlp);
  const Context context{.options = test::options(at::kDouble)};
  tensor::Batch batch;
  batch.set("samples", at::arange(kMoeBatch, at::kLong) + 7);
  const tensor::Pass training{.batch = batch}, evaluation{.batch = batch, .training = false};
  const auto scores = [&](const config::Model& m, const Tensor& x, const tensor::Pass& pass) {
    Router router(params, m, context);
    test::randomize({router.weight.get()});
    return router.forward(x, pass).scores.detach();
  };
  const Tensor x = test::named_random("x", {kMoeSequence, kMoeBatch, kHidden});
  const auto key =
      dropout_key(dropout_stream(context.seed, params.router.name), SharedRows(context), x, training);
  EXPECT_TRUE(at::equal(scores(noisy, x, training), scores(plain, ops::jitter(x, 0.5, key), training)));
  EXPECT_GT(test::distance(scores(noisy, x, training), scores(plain, x, training)), 1e-3);
  EXPECT_TRUE(at::equal(scores(noisy, x, evaluation), scores(plain, x, evaluation)));
}

/// Logits, scores and weights of 16-bit inputs are those of fp32: the products of bf16 would choose others.
TEST(Moe, ARouterOf16BitInputsThinksInFp32) {
  constexpr std::int64_t kWide = 256;
  config::Model m = model(config::TokenDispatcher::kAllGather);
  m.hidden_size = kWide;
  const auto params = std::get<layout::MoeParams>(layout::layer_params(m, {}, 0).mlp);
  Router router(params, m, {.options = test::options(at::kBFloat16)});
  test::randomize({router.weight.get()});
  router.weight->main_grad = at::zeros(router.weight->value.sizes(), at::kFloat);
  const Tensor x = test::named_random("x", {64, kMoeBatch, kWide}).to(at::kBFloat16).set_requires_grad(true);
  const tensor::Batch none;
  const ops::Routing routing = router.forward(x, {.batch = none});

  const Tensor w = router.weight->value.detach().to(at::kDouble).requires_grad_();
  const Tensor leaf = x.detach().to(at::kDouble).requires_grad_();
  const auto [top, experts] = at::linear(leaf.view({-1, kWide}), w).topk(m.moe.router_topk, -1);
  const Tensor weights = top.softmax(-1);
  EXPECT_EQ(routing.weights.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(routing.experts, experts));
  EXPECT_LT(test::distance(routing.weights, weights), 1e-5);
  const Tensor rounded = at::linear(x.detach(), router.weight->value.detach()).view({-1, kExperts});
  EXPECT_GT(test::distance(std::get<0>(rounded.topk(m.moe.router_topk, -1)).softmax(-1), weights), 1e-3);

  const Tensor probe = test::named_random("probe", weights.sizes());
  routing.weights.backward(probe.to(at::kFloat));
  weights.backward(probe);
  EXPECT_LT(test::distance(router.weight->main_grad, w.grad()), 1e-5);
  EXPECT_LT(test::distance(x.grad(), leaf.grad()), 1e-2) << "of bf16";
}

/// The outcome of every rank with shared experts beside the exchange is that of shared experts after it.
TEST(Moe, SharedExpertsBesideTheExchangeGiveEqualBits) {
  for (const Cut& cut : {kCuts[0], kCuts[1], kCuts[4], kCuts[6], kCuts[7]}) {
    SCOPED_TRACE(text(cut));
    config::Model m = model(config::TokenDispatcher::kAllToAll);
    m.moe.shared_expert_gate = true;
    const Tensor x = test::named_random("x", {kMoeSequence * cut.world / cut.tp, kMoeBatch, kHidden});
    on_ranks(cut, m,
             [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
               const auto outcome = [&](bool beside) {
                 config::Model one = m;
                 one.moe.shared_expert_overlap = beside;
                 Moe moe(params, one, context);
                 std::vector<tensor::Parameter*> parameters;
                 moe.add_parameters(parameters);
                 test::randomize(parameters);
                 const Tensor leaf = x.chunk(cut.world, 0)[ranks.rank()].clone().set_requires_grad(true);
                 const tensor::Batch none;
                 const Tensor y = moe.forward(leaf, {.batch = none});
                 y.backward(test::named_random("probe", y.sizes()));
                 std::vector<Tensor> all{y.detach(), leaf.grad()};
                 for (const tensor::Parameter* p : parameters) all.push_back(p->main_grad);
                 return all;
               };
               const auto after = outcome(false), beside = outcome(true);
               for (std::size_t i = 0; i < after.size(); ++i)
                 EXPECT_TRUE(at::equal(after[i], beside[i])) << i;
             });
  }
}

/// Calls of a forward and a backward pass that name one of these, in their order; nothing is sent.
std::vector<std::string> calls_about_rows(bool beside) {
  config::Model m = model(config::TokenDispatcher::kAllToAll);
  m.moe.shared_expert_overlap = beside;
  config::Parallel parallel;
  parallel.world_size = parallel.tensor_model_parallel_size = parallel.expert_model_parallel_size = 2;
  parallel.expert_tensor_parallel_size = 1;
  parallel.sequence_parallel = true;
  const auto log = std::make_shared<comm::CallLog>();
  comm::Communicators ranks(layout::Mesh(parallel), 0, comm::null_factory(log));
  const Context context{.tp = ranks.group({layout::Axis::kTp}),
                        .sequence_parallel = true,
                        .options = test::options(at::kFloat).device(at::kMeta),
                        .experts = ranks.group(layout::model_axes(layout::Family::kExpert)),
                        .draws = false};
  Moe moe(std::get<layout::MoeParams>(layout::layer_params(m, parallel, 0).mlp), m, context);
  std::vector<tensor::Parameter*> parameters;
  moe.add_parameters(parameters);
  for (tensor::Parameter* p : parameters) p->main_grad = at::empty_like(p->value);
  const Tensor x = at::empty({kMoeSequence, kMoeBatch, kHidden}, context.options).set_requires_grad(true);
  const tensor::Batch none;
  const Tensor y = moe.forward(x, {.batch = none});
  y.backward(at::empty_like(y));
  std::vector<std::string> names;
  for (const comm::LoggedCall& call : log->calls())
    for (const char* word : {"rows to their experts", "rows back", "shared_experts"})
      if (call.what.find(word) != std::string::npos && (names.empty() || names.back() != word))
        names.emplace_back(word);
  return names;
}

TEST(Moe, SharedExpertsAreComputedWhileRowsTravel) {
  const char *to = "rows to their experts", *back = "rows back", *shared = "shared_experts";
  EXPECT_THAT(calls_about_rows(false), testing::ElementsAre(to, back, shared, to, back));
  EXPECT_THAT(calls_about_rows(true), testing::ElementsAre(to, shared, back, to, back, shared));
}

/// Losses and their gradients against their formulas, where groups and a bias steer the choice.
TEST(Moe, LossesAreTheirFormulas) {
  config::Model m = model(config::TokenDispatcher::kAllGather);
  m.moe.router_score_function = config::RouterScore::kSigmoid;
  m.moe.router_enable_expert_bias = true;
  m.moe.router_num_groups = 2;
  m.moe.router_group_topk = 1;
  m.moe.router_load_balancing_type = {"aux_loss", "seq_aux_loss"};
  m.moe.aux_loss_coeff = {0.5, 0.25};
  m.moe.z_loss_coeff = 0.125;
  const auto params = std::get<layout::MoeParams>(layout::layer_params(m, {}, 0).mlp);
  const Context context{.options = test::options(at::kDouble)};
  Router router(params, m, context);
  test::randomize({router.weight.get()});
  router.expert_bias->value.copy_(at::tensor({0.0, 0.4, -0.3, 0.1}, at::kDouble));
  const Tensor x = test::named_random("x", {kMoeSequence, kMoeBatch, kHidden});
  const double k = 2, experts = kExperts, scale = 3;

  const Tensor w = test::whole_value(params.router).set_requires_grad(true);
  const Tensor logits = at::matmul(x, w.t());  // [s, b, e]
  const Tensor shares = logits.sigmoid() / logits.sigmoid().sum(-1, true);
  const Tensor best = at::zeros_like(shares).scatter(-1, std::get<1>(shares.topk(2, -1)), 1.0);
  const auto balance = [&](const Tensor& p, const Tensor& f, double tokens) {
    return (p * f).sum() * experts / (k * tokens * tokens);
  };
  const Tensor aux = balance(shares.sum(0).sum(0), best.sum(0).sum(0), kMoeSequence * kMoeBatch);
  const Tensor by_sequence = balance(shares.sum(0), best.sum(0), kMoeSequence) / kMoeBatch;
  const Tensor z = logits.logsumexp(-1).square().mean();
  (scale * (0.5 * aux + 0.25 * by_sequence + 0.125 * z)).backward();

  tensor::Report report;
  const tensor::Batch none;
  const Tensor weights = router.forward(x, {.batch = none, .grad_scale = scale, .report = &report}).weights;
  (weights * 0).sum().backward();  // nothing but the losses
  for (const auto& [name, value] :
       {std::pair{"load_balancing_loss", aux}, std::pair{"seq_load_balancing_loss", by_sequence},
        std::pair{"z_loss", z}}) {
    EXPECT_NEAR(report.tallies.at(name)[0].item<double>(), value.item<double>(), 1e-12) << name;
    EXPECT_EQ(report.tallies.at(name)[1].item<double>(), 1) << name;
  }
  EXPECT_LT(test::distance(router.weight->main_grad, w.grad()), 1e-11);
}

/// Over two micro-batches of all data ranks; the second step begins anew.
TEST(Moe, TheLossOverAStepIsItsFormula) {
  config::Model m = model(config::TokenDispatcher::kAllGather);
  m.moe.router_load_balancing_type = {"global_aux_loss"};
  m.moe.aux_loss_coeff = {0.5};
  const double k = 2, experts = kExperts, scale = 3;
  const layout::ParamSpec spec = std::get<layout::MoeParams>(layout::layer_params(m, {}, 0).mlp).router;
  for (const Cut& cut : {Cut{1, 1, 1, 1}, Cut{1, 2, 1, 2}, Cut{2, 1, 2, 2}, Cut{2, 2, 1, 4}}) {
    SCOPED_TRACE(text(cut));
    const std::int64_t tokens = kMoeSequence * cut.world / cut.tp;
    const Tensor x = test::named_random("x", {tokens, kMoeBatch, kHidden});
    const Tensor w = test::whole_value(spec).set_requires_grad(true);
    const Tensor shares = at::matmul(x, w.t()).softmax(-1);  // [s, micro-batch, e]
    const Tensor best = at::zeros_like(shares).scatter(-1, std::get<1>(shares.topk(2, -1)), 1.0).sum(0);
    Tensor loss = at::zeros({}, at::kDouble);
    for (std::int64_t i = 0; i < 2; ++i) {
      const Tensor f = best.narrow(0, 0, i + 1).mean(0);
      loss = loss + experts / k * (shares.select(1, i).sum(0) / tokens * f / tokens).sum();
    }
    (scale * 0.5 * loss).backward();
    on_ranks(cut, m,
             [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
               Router router(params, m, context);
               test::randomize({router.weight.get()});
               const tensor::Batch none;
               for (int step = 0; step < 2; ++step) {
                 tensor::Report report;
                 if (router.weight->main_grad.defined()) router.weight->main_grad.zero_();
                 for (const Tensor& part : x.chunk(cut.world, 0)[ranks.rank()].chunk(2, 1)) {
                   const tensor::Pass pass{
                       .batch = none, .grad_scale = scale * cut.tp / cut.world, .report = &report};
                   (router.forward(part.contiguous(), pass).weights * 0).sum().backward();
                 }
                 router.finish_step();
                 const Tensor told = report.tallies.at("global_load_balancing_loss");
                 EXPECT_NEAR(told[0].item<double>(), loss.item<double>(), 1e-12) << "step " << step;
                 EXPECT_EQ(told[1].item<double>(), 2);
                 EXPECT_LT(test::distance(summed(router.weight->main_grad, ranks.world()), w.grad()), 1e-11);
               }
             });
  }
}

/// The bias moves by the tokens of all ranks, and chooses without weighing.
TEST(Moe, TheExpertBiasMovesByTheTokensOfAStep) {
  config::Model m = model(config::TokenDispatcher::kAllToAll);
  m.moe.router_score_function = config::RouterScore::kSigmoid;
  m.moe.router_enable_expert_bias = true;
  m.moe.router_bias_update_rate = 0.25;
  const Tensor x = test::named_random("x", {kMoeSequence, kMoeBatch, kHidden});
  const Tensor w = test::whole_value(std::get<layout::MoeParams>(layout::layer_params(m, {}, 0).mlp).router);
  const Tensor scores = at::matmul(x.reshape({-1, kHidden}), w.t()).sigmoid();
  Tensor bias = at::zeros({kExperts}, at::kDouble);
  std::vector<Tensor> biases, weights;
  for (int step = 0; step < 3; ++step) {
    const Tensor experts = std::get<1>((scores + bias).topk(2, -1));
    const Tensor taken = at::bincount(experts.reshape(-1), {}, kExperts).to(at::kDouble);
    const Tensor chosen = scores.gather(1, experts);
    weights.push_back((chosen / chosen.sum(-1, true)).sum(0));
    bias = bias + 0.25 * (taken.mean() - taken).sign();
    biases.push_back(bias);
  }
  ASSERT_FALSE(at::equal(biases[1], biases[0] * 2))
      << "the bias must change the choice for the test to see it";
  for (const Cut& cut : {Cut{1, 1, 1, 1}, Cut{1, 2, 1, 2}, Cut{2, 2, 1, 2}, Cut{1, 1, 1, 4}}) {
    SCOPED_TRACE(text(cut));
    on_ranks(
        cut, m, [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
          Router router(params, m, context);
          test::randomize({router.weight.get()});
          router.expert_bias->value.zero_();
          EXPECT_FALSE(router.expert_bias->value.requires_grad());
          const tensor::Batch none;
          for (int step = 0; step < 3; ++step) {
            const Tensor mine = x.chunk(cut.world, 0)[ranks.rank()];
            EXPECT_EQ(router.forward(mine, {.batch = none, .training = false}).experts.size(1),
                      2);  // not counted
            // Two micro-batches of one sequence each.
            Tensor sum = at::zeros({2}, at::kDouble);
            for (const Tensor& part : mine.chunk(2, 1))
              sum += router.forward(part.contiguous(), {.batch = none}).weights.detach().sum(0);
            ranks.world().all_reduce(sum, "test").wait();
            EXPECT_LT(test::distance(sum, weights[static_cast<std::size_t>(step)]), 1e-12) << "step " << step;
            router.finish_step();
            EXPECT_LT(test::distance(router.expert_bias->value, biases[static_cast<std::size_t>(step)]),
                      1e-14);
          }
        });
  }
}

}  // namespace
}  // namespace colonnade::layers
