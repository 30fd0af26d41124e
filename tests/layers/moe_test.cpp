// MoE layers in every layout of experts against a token-by-token reference.
#include "colonnade/layers/moe/moe.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/comm/null_backend.h"
#include "colonnade/comm/thread_ranks.h"
#include "colonnade/config/derive.h"
#include "colonnade/layers/residual.h"
#include "layers/experts.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

config::Model model(config::TokenDispatcher dispatcher) {
  config::Model m = expert_model();
  m.activation = config::Activation::kSwiglu;
  m.moe.shared_expert_intermediate_size = 4;
  m.moe.token_dispatcher_type = dispatcher;
  return m;
}

struct ExpertLayout {
  int tp, ep, etp, world;
};

std::string text(const ExpertLayout& sizes) {
  return fmt::format("tp {} ep {} etp {} of {} ranks", sizes.tp, sizes.ep, sizes.etp, sizes.world);
}

const std::vector<ExpertLayout> kExpertLayouts = {{1, 1, 1, 1}, {1, 2, 1, 2}, {1, 4, 1, 4},
                                                  {1, 1, 2, 2}, {1, 2, 2, 4}, {2, 1, 2, 2},
                                                  {2, 2, 1, 2}, {4, 2, 2, 4}, {4, 4, 1, 4}};

/// Runs body(groups, parameters of the layer, context) on every rank of the layout.
template <typename Body>
void on_ranks(const ExpertLayout& sizes, const config::Model& m, const Body& body) {
  config::Parallel parallel;
  parallel.world_size = sizes.world;
  parallel.tensor_model_parallel_size = sizes.tp;
  parallel.sequence_parallel = sizes.tp > 1;
  parallel.expert_model_parallel_size = sizes.ep;
  parallel.expert_tensor_parallel_size = sizes.etp;
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const Context context{.tp = ranks.group({layout::Axis::kTp}),
                          .sequence_parallel = sizes.tp > 1,
                          .options = test::options(at::kDouble),
                          .dispatch = ranks.group(layout::model_axes(layout::ParamGroup::kExpert)),
                          .etp = sizes.etp,
                          .token_ranks = ranks.world()};
    body(ranks, layout::mixer_of<layout::MoeParams>(layout::layer_params(m, parallel, 0)), context);
  });
}

Tensor swiglu(const Tensor& x) {
  const auto halves = x.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

/// Whether choice j of token t is within the capacity `most`.
bool is_kept(const Tensor& experts, const Tensor& weights, std::int64_t t, std::int64_t j, std::int64_t most,
             config::TokenDropPolicy policy) {
  std::int64_t before = 0;
  for (std::int64_t u = 0; u < experts.size(0); ++u)
    for (std::int64_t i = 0; i < experts.size(1); ++i) {
      if (u == t || experts[u][i].item<std::int64_t>() != experts[t][j].item<std::int64_t>()) continue;
      const bool heavier = weights[u][i].item<double>() > weights[t][j].item<double>();
      if (policy == config::TokenDropPolicy::kPosition ? u < t : heavier) ++before;
    }
  return before < most;
}

/// MoE output for tokens x [n, h] of one router, token by token.
Tensor reference_moe(const Tensor& x, const test::Weights& w, const config::Moe& moe) {
  const auto of = [&](const char* name) { return w.at(std::string("decoder.layers.0.mlp.") + name); };
  const auto [top, experts] = at::matmul(x, of("router.weight").t()).topk(moe.router_topk);
  const Tensor in = moe.routed_size > 0 ? at::matmul(x, of("fc1_latent_proj.weight").t()) : x;
  const Tensor weights = top.softmax(-1), seen = weights.detach();
  const double share = static_cast<double>(experts.numel()) / kExperts;
  const auto most = static_cast<std::int64_t>(std::ceil(share * moe.expert_capacity_factor.value_or(100)));
  std::vector<Tensor> rows;
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    Tensor y = at::matmul(of("shared_experts.linear_fc2.weight"),
                          swiglu(at::matmul(of("shared_experts.linear_fc1.weight"), x[t])));
    Tensor sum = at::zeros_like(in[t]);
    for (std::int64_t j = 0; j < moe.router_topk; ++j) {
      if (!is_kept(experts, seen, t, j, most, moe.token_drop_policy)) continue;
      const auto e = experts[t][j].item<std::int64_t>();
      sum = sum + weights[t][j] * at::matmul(of("experts.linear_fc2.weight")[e],
                                             swiglu(at::matmul(of("experts.linear_fc1.weight")[e], in[t])));
    }
    y = y + (moe.routed_size > 0 ? at::matmul(of("fc2_latent_proj.weight"), sum) : sum);
    rows.push_back(y);
  }
  return at::stack(rows);
}

/// Full gradient: the sum over all ranks, which hold different tokens.
Tensor summed(const Tensor& own, const comm::Group& world) {
  Tensor sum = own.clone();
  world.all_reduce(sum, "test").wait();
  return sum;
}

/// This rank's gradient placed in the unsharded one, zeros elsewhere.
Tensor place_in_full(const tensor::Parameter& p) {
  Tensor whole = at::zeros(p.spec.shape, at::kDouble);
  for (const layout::ShardBox& part : p.shard.boxes)
    tensor::box_view(whole, part.global, part.length)
        .copy_(tensor::box_view(p.main_grad, part.local, part.length));
  return whole;
}

/// Shards the tokens of x over all ranks and compares the combined results with those of one rank.
void expect_in_layout(const ExpertLayout& sizes, const config::Model& m) {
  SCOPED_TRACE(text(sizes));
  const std::int64_t sequence = kSequence * sizes.world / sizes.tp;  // data ranks lie one after the other
  const Tensor x = test::named_random("x", {sequence, kBatch, kHidden});
  const auto all = layout::layer_params(m, {}, 0);
  const auto& specs = layout::mixer_of<layout::MoeParams>(all);
  std::vector<layout::ParamSpec> list;
  layout::for_each(specs, [&](const layout::ParamSpec& spec) {
    if (!spec.name.ends_with("layernorm.weight") && !spec.name.ends_with("layernorm.bias"))
      list.push_back(spec);
  });
  const test::Expected expected = test::reference(list, x, [&](const Tensor& leaf, const test::Weights& w) {
    std::vector<Tensor> parts;  // one per rank's router
    for (const Tensor& part : leaf.chunk(sizes.world, 0))
      parts.push_back(reference_moe(part.reshape({-1, kHidden}), w, m.moe).view(part.sizes()));
    return at::cat(parts);
  });

  on_ranks(
      sizes, m, [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
        Moe moe(params, m, context);
        std::vector<tensor::Parameter*> parameters;
        moe.add_parameters(parameters);
        test::randomize(parameters);
        const auto own = [&](const Tensor& whole) { return whole.chunk(sizes.world, 0)[ranks.rank()]; };
        const Tensor leaf = own(x).clone().set_requires_grad(true);
        const tensor::Batch none;
        const Tensor y = moe.forward({.normed = leaf, .encoded = {}}, {.batch = none});
        EXPECT_LT(test::distance(y, own(expected.y)), 1e-12) << "output";
        y.backward(own(test::probe_for(expected.y)));
        EXPECT_LT(test::distance(leaf.grad(), own(expected.grad_x)), 1e-12) << "gradient of the input";
        for (const tensor::Parameter* p : parameters) {
          EXPECT_LT(test::distance(summed(place_in_full(*p), ranks.world()), expected.grads.at(p->spec.name)),
                    1e-11)
              << p->spec.name;
        }
      });
}

constexpr config::TokenDispatcher kDispatchers[] = {config::TokenDispatcher::kAllGather,
                                                    config::TokenDispatcher::kAllToAll};

TEST(Moe, AllGatherDispatcherInEveryLayoutEqualsDefinition) {
  for (const ExpertLayout& sizes : kExpertLayouts)
    expect_in_layout(sizes, model(config::TokenDispatcher::kAllGather));
}

TEST(Moe, AllToAllDispatcherInEveryLayoutEqualsDefinition) {
  for (const ExpertLayout& sizes : kExpertLayouts)
    expect_in_layout(sizes, model(config::TokenDispatcher::kAllToAll));
}

/// Projections to rows of width 6 around the dispatch; router and shared experts read the full tokens.
TEST(Moe, LatentExpertsInEveryLayoutEqualTheirDefinition) {
  for (const auto dispatcher : kDispatchers)
    for (const ExpertLayout& sizes : kExpertLayouts) {
      config::Model m = model(dispatcher);
      m.moe.routed_size = 6;
      m.moe.shared_expert_overlap = dispatcher == config::TokenDispatcher::kAllToAll;
      expect_in_layout(sizes, m);
    }
}

config::Model with_capacity(config::TokenDispatcher dispatcher, double factor, bool padded,
                            config::TokenDropPolicy policy) {
  config::Model m = model(dispatcher);
  m.moe.expert_capacity_factor = factor;
  m.moe.pad_expert_input_to_capacity = padded;
  m.moe.token_drop_policy = policy;
  return m;
}

TEST(Moe, DropsSmallestWeightsOverCapacity) {
  for (const auto dispatcher : kDispatchers)
    for (const ExpertLayout& sizes : kExpertLayouts)
      expect_in_layout(sizes, with_capacity(dispatcher, 0.7, false, config::TokenDropPolicy::kProbs));
}

TEST(Moe, DropsLastTokensOverCapacity) {
  for (const auto dispatcher : kDispatchers)
    for (const ExpertLayout& sizes : kExpertLayouts)
      expect_in_layout(sizes, with_capacity(dispatcher, 0.7, false, config::TokenDropPolicy::kPosition));
}

TEST(Moe, PadsExpertInputToCapacity) {
  for (const auto dispatcher : kDispatchers)
    for (const double factor : {0.7, 1.3, 5.0})
      for (const ExpertLayout& sizes :
           {kExpertLayouts[0], kExpertLayouts[2], kExpertLayouts[4], kExpertLayouts[7]})
        expect_in_layout(sizes, with_capacity(dispatcher, factor, true, config::TokenDropPolicy::kProbs));
}

/// Counts before and after dropping; evaluation counts nothing, generation drops nothing.
TEST(Moe, CountsTokensOfEachExpert) {
  const config::Model m =
      with_capacity(config::TokenDispatcher::kAllGather, 0.7, false, config::TokenDropPolicy::kPosition);
  const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0));
  Router router(params, m, {.options = test::options(at::kDouble)});
  test::randomize({router.weight.get()});
  const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
  tensor::Report report;
  const tensor::Batch none;
  const auto all = [](const Tensor& experts) { return at::bincount(experts.reshape(-1), {}, kExperts + 1); };
  static_cast<void>(router.forward(x, {.batch = none, .training = false, .report = &report}));
  EXPECT_TRUE(report.counts.empty());
  const Tensor kept = all(router.forward(x, {.batch = none, .report = &report}).experts);
  tensor::KeyValueCache* cache = reinterpret_cast<tensor::KeyValueCache*>(&report);  // never dereferenced
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

TEST(Moe, JitterAppliesInTrainingOnly) {
  const config::Model plain = model(config::TokenDispatcher::kAllGather);
  config::Model noisy = plain;
  noisy.moe.input_jitter_eps = 0.5;
  const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(plain, {}, 0));
  const Context context{.options = test::options(at::kDouble)};
  tensor::Batch batch;
  batch.set(tensor::Field::kSamples, at::arange(kBatch, at::kLong) + 7);
  const tensor::Pass training{.batch = batch}, evaluation{.batch = batch, .training = false};
  const auto scores = [&](const config::Model& m, const Tensor& x, const tensor::Pass& pass) {
    Router router(params, m, context);
    test::randomize({router.weight.get()});
    return router.forward(x, pass).scores.detach();
  };
  const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
  const auto key =
      dropout_key(dropout_stream(context.seed, params.router.name), LocalRows(context), x, training);
  EXPECT_TRUE(at::equal(scores(noisy, x, training), scores(plain, ops::jitter(x, 0.5, key), training)));
  EXPECT_GT(test::distance(scores(noisy, x, training), scores(plain, x, training)), 1e-3);
  EXPECT_TRUE(at::equal(scores(noisy, x, evaluation), scores(plain, x, evaluation)));
}

/// Routers compute logits, scores and weights of 16-bit inputs in fp32; bf16 GEMMs would choose other
/// experts.
TEST(Moe, RouterOf16BitInputsComputesInFp32) {
  constexpr std::int64_t kWide = 256;
  config::Model m = model(config::TokenDispatcher::kAllGather);
  m.hidden_size = kWide;
  const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0));
  Router router(params, m, {.options = test::options(at::kBFloat16)});
  test::randomize({router.weight.get()});
  router.weight->main_grad = at::zeros(router.weight->value.sizes(), at::kFloat);
  const Tensor x = test::named_random("x", {64, kBatch, kWide}).to(at::kBFloat16).set_requires_grad(true);
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

/// Overlapping shared experts with the dispatch changes no bit on any rank.
TEST(Moe, OverlappedSharedExpertsGiveEqualBits) {
  for (const ExpertLayout& sizes :
       {kExpertLayouts[0], kExpertLayouts[1], kExpertLayouts[4], kExpertLayouts[6], kExpertLayouts[7]}) {
    SCOPED_TRACE(text(sizes));
    config::Model m = model(config::TokenDispatcher::kAllToAll);
    m.moe.shared_expert_gate = true;
    const Tensor x = test::named_random("x", {kSequence * sizes.world / sizes.tp, kBatch, kHidden});
    on_ranks(sizes, m,
             [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
               const auto outcome = [&](bool overlapped) {
                 config::Model one = m;
                 one.moe.shared_expert_overlap = overlapped;
                 Moe moe(params, one, context);
                 std::vector<tensor::Parameter*> parameters;
                 moe.add_parameters(parameters);
                 test::randomize(parameters);
                 const Tensor leaf = x.chunk(sizes.world, 0)[ranks.rank()].clone().set_requires_grad(true);
                 const tensor::Batch none;
                 const Tensor y = moe.forward({.normed = leaf, .encoded = {}}, {.batch = none});
                 y.backward(test::named_random("probe", y.sizes()));
                 std::vector<Tensor> all{y.detach(), leaf.grad()};
                 for (const tensor::Parameter* p : parameters) all.push_back(p->main_grad);
                 return all;
               };
               const auto after = outcome(false), overlapped = outcome(true);
               for (std::size_t i = 0; i < after.size(); ++i)
                 EXPECT_TRUE(at::equal(after[i], overlapped[i])) << i;
             });
  }
}

/// Order of row exchanges and shared experts' collectives in a forward and backward pass (null backend).
std::vector<std::string> row_communication(bool overlapped) {
  config::Model m = model(config::TokenDispatcher::kAllToAll);
  m.moe.shared_expert_overlap = overlapped;
  config::Parallel parallel;
  parallel.world_size = parallel.tensor_model_parallel_size = parallel.expert_model_parallel_size = 2;
  parallel.expert_tensor_parallel_size = 1;
  parallel.sequence_parallel = true;
  const auto log = std::make_shared<comm::CallLog>();
  comm::Communicators ranks(layout::Mesh(parallel), 0, comm::null_factory(log));
  const Context context{.tp = ranks.group({layout::Axis::kTp}),
                        .sequence_parallel = true,
                        .options = test::options(at::kFloat).device(at::kMeta),
                        .dispatch = ranks.group(layout::model_axes(layout::ParamGroup::kExpert)),
                        .random_init = false};
  Moe moe(layout::mixer_of<layout::MoeParams>(layout::layer_params(m, parallel, 0)), m, context);
  std::vector<tensor::Parameter*> parameters;
  moe.add_parameters(parameters);
  for (tensor::Parameter* p : parameters) p->main_grad = at::empty_like(p->value);
  const Tensor x = at::empty({kSequence, kBatch, kHidden}, context.options).set_requires_grad(true);
  const tensor::Batch none;
  const Tensor y = moe.forward({.normed = x, .encoded = {}}, {.batch = none});
  y.backward(at::empty_like(y));
  std::vector<std::string> names;
  for (const comm::LoggedCall& call : log->calls())
    for (const char* word : {"rows to their experts", "rows back", "shared_experts"})
      if (call.what.find(word) != std::string::npos && (names.empty() || names.back() != word))
        names.emplace_back(word);
  return names;
}

TEST(Moe, SharedExpertsOverlapTheDispatch) {
  const char *to = "rows to their experts", *back = "rows back", *shared = "shared_experts";
  EXPECT_THAT(row_communication(false), testing::ElementsAre(to, back, shared, to, back));
  EXPECT_THAT(row_communication(true), testing::ElementsAre(to, shared, back, to, back, shared));
}

/// Losses and their gradients against their formulas, with expert groups and an expert bias.
TEST(Moe, LossesEqualTheirFormulas) {
  config::Model m = model(config::TokenDispatcher::kAllGather);
  m.moe.router_score_function = config::RouterScore::kSigmoid;
  m.moe.router_enable_expert_bias = true;
  m.moe.router_num_groups = 2;
  m.moe.router_group_topk = 1;
  m.moe.router_load_balancing_type = {"aux_loss", "seq_aux_loss"};
  m.moe.aux_loss_coeff = {0.5, 0.25};
  m.moe.z_loss_coeff = 0.125;
  m.moe.per_layer_logging = true;
  const auto params = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0));
  const Context context{.options = test::options(at::kDouble)};
  Router router(params, m, context);
  test::randomize({router.weight.get()});
  router.expert_bias->value.copy_(at::tensor({0.0, 0.4, -0.3, 0.1}, at::kDouble));
  const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
  const double k = 2, experts = kExperts, scale = 3;

  const Tensor w = test::full_value(params.router).set_requires_grad(true);
  const Tensor logits = at::matmul(x, w.t());  // [s, b, e]
  const Tensor shares = logits.sigmoid() / logits.sigmoid().sum(-1, true);
  const Tensor best = at::zeros_like(shares).scatter(-1, std::get<1>(shares.topk(2, -1)), 1.0);
  const auto balance = [&](const Tensor& p, const Tensor& f, double tokens) {
    return (p * f).sum() * experts / (k * tokens * tokens);
  };
  const Tensor aux = balance(shares.sum(0).sum(0), best.sum(0).sum(0), kSequence * kBatch);
  const Tensor by_sequence = balance(shares.sum(0), best.sum(0), kSequence) / kBatch;
  const Tensor z = logits.logsumexp(-1).square().mean();
  (scale * (0.5 * aux + 0.25 * by_sequence + 0.125 * z)).backward();

  tensor::Report report;
  const tensor::Batch none;
  const Tensor weights = router.forward(x, {.batch = none, .grad_scale = scale, .report = &report}).weights;
  (weights * 0).sum().backward();  // nothing but the losses
  for (const auto& [name, value] :
       {std::pair{"load_balancing_loss", aux}, std::pair{"seq_load_balancing_loss", by_sequence},
        std::pair{"z_loss", z}}) {
    EXPECT_NEAR(report.metric_sums.at(name)[0].item<double>(), value.item<double>(), 1e-12) << name;
    EXPECT_EQ(report.metric_sums.at(name)[1].item<double>(), 1) << name;
    const std::string own = fmt::format("layer_loss/{}/{}", name, router.weight->spec.name);
    EXPECT_TRUE(at::equal(report.metric_sums.at(own), report.metric_sums.at(name))) << own;
  }
  EXPECT_LT(test::distance(router.weight->main_grad, w.grad()), 1e-11);
}

/// Over two micro-batches of all data ranks; the state is reset before the second step.
TEST(Moe, GlobalAuxLossEqualsItsFormula) {
  config::Model m = model(config::TokenDispatcher::kAllGather);
  m.moe.router_load_balancing_type = {"global_aux_loss"};
  m.moe.aux_loss_coeff = {0.5};
  const double k = 2, experts = kExperts, scale = 3;
  const layout::ParamSpec spec = layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0)).router;
  for (const ExpertLayout& sizes : {ExpertLayout{1, 1, 1, 1}, ExpertLayout{1, 2, 1, 2},
                                    ExpertLayout{2, 1, 2, 2}, ExpertLayout{2, 2, 1, 4}}) {
    SCOPED_TRACE(text(sizes));
    const std::int64_t tokens = kSequence * sizes.world / sizes.tp;
    const Tensor x = test::named_random("x", {tokens, kBatch, kHidden});
    const Tensor w = test::full_value(spec).set_requires_grad(true);
    const Tensor shares = at::matmul(x, w.t()).softmax(-1);  // [s, micro-batch, e]
    const Tensor best = at::zeros_like(shares).scatter(-1, std::get<1>(shares.topk(2, -1)), 1.0).sum(0);
    Tensor loss = at::zeros({}, at::kDouble);
    for (std::int64_t i = 0; i < 2; ++i) {
      const Tensor f = best.narrow(0, 0, i + 1).mean(0);
      loss = loss + experts / k * (shares.select(1, i).sum(0) / tokens * f / tokens).sum();
    }
    (scale * 0.5 * loss).backward();
    on_ranks(sizes, m,
             [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
               Router router(params, m, context);
               test::randomize({router.weight.get()});
               const tensor::Batch none;
               for (int step = 0; step < 2; ++step) {
                 tensor::Report report;
                 if (router.weight->main_grad.defined()) router.weight->main_grad.zero_();
                 for (const Tensor& part : x.chunk(sizes.world, 0)[ranks.rank()].chunk(2, 1)) {
                   const tensor::Pass pass{
                       .batch = none, .grad_scale = scale * sizes.tp / sizes.world, .report = &report};
                   (router.forward(part.contiguous(), pass).weights * 0).sum().backward();
                 }
                 router.finish_step();
                 const Tensor metric = report.metric_sums.at("global_load_balancing_loss");
                 EXPECT_NEAR(metric[0].item<double>(), loss.item<double>(), 1e-12) << "step " << step;
                 EXPECT_EQ(metric[1].item<double>(), 2);
                 EXPECT_LT(test::distance(summed(router.weight->main_grad, ranks.world()), w.grad()), 1e-11);
               }
             });
  }
}

/// The bias is updated by the tokens of all ranks and affects the choice, not the weights.
TEST(Moe, ExpertBiasFollowsTheTokensOfAStep) {
  config::Model m = model(config::TokenDispatcher::kAllToAll);
  m.moe.router_score_function = config::RouterScore::kSigmoid;
  m.moe.router_enable_expert_bias = true;
  m.moe.router_bias_update_rate = 0.25;
  const Tensor x = test::named_random("x", {kSequence, kBatch, kHidden});
  const Tensor w =
      test::full_value(layout::mixer_of<layout::MoeParams>(layout::layer_params(m, {}, 0)).router);
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
  for (const ExpertLayout& sizes : {ExpertLayout{1, 1, 1, 1}, ExpertLayout{1, 2, 1, 2},
                                    ExpertLayout{2, 2, 1, 2}, ExpertLayout{1, 1, 1, 4}}) {
    SCOPED_TRACE(text(sizes));
    on_ranks(
        sizes, m, [&](comm::Communicators& ranks, const layout::MoeParams& params, const Context& context) {
          Router router(params, m, context);
          test::randomize({router.weight.get()});
          router.expert_bias->value.zero_();
          EXPECT_FALSE(router.expert_bias->value.requires_grad());
          const tensor::Batch none;
          for (int step = 0; step < 3; ++step) {
            const Tensor own = x.chunk(sizes.world, 0)[ranks.rank()];
            EXPECT_EQ(router.forward(own, {.batch = none, .training = false}).experts.size(1),
                      2);  // not counted
            // Two micro-batches of one sequence each.
            Tensor sum = at::zeros({2}, at::kDouble);
            for (const Tensor& part : own.chunk(2, 1))
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
