// Mixture-of-experts settings, and the flags of Megatron's MoE layers without a field here.
#include "colonnade/config/access.h"
#include "colonnade/config/given.h"

namespace colonnade::config {

namespace {

constexpr auto kModel = &Run::model;
constexpr auto kMoe = &Model::moe;
constexpr auto kParallelSizes = &Run::parallel;

std::string set_coefficients(Run& run, const Words& words) {
  std::vector<double> values;
  for (const std::string& word : words)
    if (!read_number(word, values.emplace_back()) || values.back() < 0)
      return "must be numbers of at least 0";
  if (values.empty()) return "must be one number per load-balancing loss";
  run.model.moe.aux_loss_coeff = std::move(values);
  return "";
}

std::optional<Words> get_coefficients(const Run& run) {
  Words words;
  for (const double value : run.model.moe.aux_loss_coeff) words.push_back(fmt::format("{}", value));
  return words;
}

std::string set_balancing(Run& run, const Words& words) {
  for (const std::string& word : words)
    if (std::ranges::find(kLoadBalancingTypes, word) == std::end(kLoadBalancingTypes))
      return fmt::format("must be among {}", fmt::join(kLoadBalancingTypes, ", "));
  if (words.empty()) return "must be at least one type; `none` for no loss";
  run.model.moe.router_load_balancing_type = words;
  return "";
}

std::optional<Words> get_balancing(const Run& run) { return run.model.moe.router_load_balancing_type; }

/// As in Megatron, a negative factor disables dropping.
std::string set_capacity_factor(Run& run, const Words& words) {
  std::string violated = set_field<kModel, kMoe, &Moe::expert_capacity_factor>(run, words);
  auto& factor = run.model.moe.expert_capacity_factor;
  if (factor && *factor < 0) factor.reset();
  return violated;
}

/// Megatron's flex dispatcher is an all-to-all with other communication libraries.
std::string set_dispatcher(Run& run, const Words& words) {
  if (words == Words{"flex"}) return run.model.moe.token_dispatcher_type = TokenDispatcher::kAllToAll, "";
  return read(run.model.moe.token_dispatcher_type, words);
}

void experts(Table& t) {
  t.add<kModel, kMoe, &Moe::num_experts>("--num-experts", "experts per MoE layer; 0: dense model")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::layer_freq>(
      "--moe-layer-freq",
      "MoE layers: N for every N-th layer, starting with the first, or a list like "
      "([0]*3+[1]*58)");
  t.add<kModel, kMoe, &Moe::ffn_hidden_size>("--moe-ffn-hidden-size",
                                             "FFN hidden size of an expert; 0: --ffn-hidden-size")
      .range(0, 1'000'000'000);
  t.add<kModel, kMoe, &Moe::routed_size>(
       "--moe-latent-size",
       "latent MoE: width of the tokens of routed experts, with shared projections before the dispatch and "
       "after the combination; 0: hidden size, without projections")
      .range(0, 1'000'000'000);
  t.add<kModel, kMoe, &Moe::shared_expert_intermediate_size>(
       "--moe-shared-expert-intermediate-size",
       "total FFN hidden size of the shared experts, which process every token; 0: none")
      .range(0, 1'000'000'000);
  t.add<kModel, kMoe, &Moe::shared_expert_gate>(
      "--moe-shared-expert-gate", "scale the shared experts' output by a per-token sigmoid gate");
  t.add<kModel, kMoe, &Moe::shared_expert_overlap>("--moe-shared-expert-overlap",
                                                   "overlap shared experts with the token dispatch");
}

void router(Table& t) {
  t.add<kModel, kMoe, &Moe::router_topk>("--moe-router-topk", "experts per token").range(1, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_score_function>("--moe-router-score-function", "router score function");
  t.add<kModel, kMoe, &Moe::router_pre_softmax>("--moe-router-pre-softmax",
                                                "apply the softmax before the top-k, over all experts");
  t.add<kModel, kMoe, &Moe::router_num_groups>("--moe-router-num-groups",
                                               "expert groups of group-limited routing; 0: one group")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_group_topk>("--moe-router-group-topk", "groups selected per token; 0: all")
      .range(0, 1'000'000);
  t.add<kModel, kMoe, &Moe::router_group_best>(
       "--moe-router-group-best",
       "top scores summed into the score of a group; 0: topk / group topk, rounded down")
      .range(0, 1'000'000)
      .colonnade_only();
  t.add<kModel, kMoe, &Moe::router_topk_scaling_factor>("--moe-router-topk-scaling-factor",
                                                        "scaling factor of the routing weights; unset: 1")
      .at_least(0);
  t.add<kModel, kMoe, &Moe::router_enable_expert_bias>(
      "--moe-router-enable-expert-bias",
      "aux-loss-free load balancing: a selection-only bias, updated after each step towards "
      "underloaded experts");
  t.add<kModel, kMoe, &Moe::router_bias_update_rate>("--moe-router-bias-update-rate",
                                                     "update rate of the expert bias")
      .at_least(0)
      .training_only();
  t.add<kModel, kMoe, &Moe::input_jitter_eps>(
       "--moe-input-jitter-eps",
       "multiply the router input by uniform noise within [1 - eps, 1 + eps]; 0: none")
      .range(0, 1)
      .training_only();
  t.add<kModel, kMoe, &Moe::router_force_load_balancing>(
       "--moe-router-force-load-balancing",
       "replace router logits by random ones for an even expert load; benchmarks only, losses "
       "are meaningless")
      .training_only();
  t.special("--moe-router-load-balancing-type",
            "load balancing: aux_loss (per micro-batch), seq_aux_loss (per sequence), "
            "global_aux_loss (per step), each weighted by --moe-aux-loss-coeff; sinkhorn "
            "(assignment, no loss); none")
      .accessors(Kind::kList, &set_balancing, &get_balancing)
      .unsupported({"quantile_balancing"}, "quantile balancing of experts");
  t.special("--moe-aux-loss-coeff", "coefficient of each load-balancing loss; 0: no loss")
      .accessors(Kind::kList, &set_coefficients, &get_coefficients)
      .training_only();
  t.add<kModel, kMoe, &Moe::z_loss_coeff>(
       "--moe-z-loss-coeff", "coefficient of the router z-loss: mean squared log-sum-exp of the logits")
      .at_least(0)
      .training_only();
  t.add<kModel, kMoe, &Moe::per_layer_logging>("--moe-per-layer-logging",
                                               "report the router losses of each MoE layer in the metrics")
      .training_only();
}

void tokens(Table& t) {
  t.add<kModel, kMoe, &Moe::token_dispatcher_type>(
       "--moe-token-dispatcher-type",
       "collective of the token dispatch; flex is treated as alltoall with any backend")
      .accessors(Kind::kChoice, set_dispatcher, get_field<kModel, kMoe, &Moe::token_dispatcher_type>)
      .choices({"allgather", "alltoall", "flex"});
  t.add<kModel, kMoe, &Moe::expert_capacity_factor>(
       "--moe-expert-capacity-factor",
       "expert capacity as a multiple of the even share of a rank's micro-batch; excess tokens "
       "are dropped; unset or negative: no dropping")
      .accessors(Kind::kNumber, set_capacity_factor, get_field<kModel, kMoe, &Moe::expert_capacity_factor>);
  t.add<kModel, kMoe, &Moe::pad_expert_input_to_capacity>(
      "--moe-pad-expert-input-to-capacity", "pad the input of every expert to its capacity with zeros");
  t.add<kModel, kMoe, &Moe::token_drop_policy>(
      "--moe-token-drop-policy",
      "tokens dropped above the capacity: lowest routing weight (probs) or last position "
      "(position)");
}

void upcycling(Table& t) {
  t.add<kModel, kMoe, &Moe::use_upcycling>(
       "--moe-use-upcycling",
       "start from a dense checkpoint (--pretrained-checkpoint or --load): its MLPs become the experts")
      .training_only();
  t.add<kModel, kMoe, &Moe::upcycling_granularity>(
       "--moe-upcycling-granularity",
       "FFN hidden size of the dense checkpoint as a multiple of --ffn-hidden-size; its MLPs are split into "
       "that many smaller experts")
      .range(1, 1'000'000)
      .training_only();
}

constexpr const char* kNoExperts = "has no effect without --num-experts";
bool has_no_experts(const Run& r) {
  return r.model.moe.num_experts == 0 && !r.invalid_keys.contains("num_experts");
}

constexpr Flag kDispatchers[] = {
    {"--moe-enable-deepep"},
    {"--moe-flex-dispatcher-backend", "text", "deepep", "", "deepep hybridep ncclep"},
    {"--moe-permute-fusion-into-hybridep"},
    {"--moe-hybridep-pad-uneven-dispatch-inputs"},
    {"--moe-flex-dispatcher-num-sms", "integer"},
    {"--moe-deepep-num-sms", "integer"},
    {"--moe-hybridep-num-sms", "integer"},
    {"--moe-hybridep-num-blocks-permute", "integer"},
    {"--moe-hybridep-num-blocks-unpermute", "integer"},
    {"--moe-hybridep-num-sms-preprocessing", "integer", "108"},
    {"--moe-ncclep-zero-copy"},
};

constexpr Flag kExpertWeights[] = {
    {"--moe-use-grouped-tensor"},
    {"--moe-single-grouped-weight"},
    {"--moe-single-grouped-bias"},
};

constexpr Flag kGroupedGemms[] = {
    {"--use-grouped-gemm-for-shared-expert"},
    {"--use-grouped-gemm-for-dense-mlp"},
};

constexpr Flag kExpertPadding[] = {
    {"--moe-router-padding-for-quantization"},
    {"--moe-router-padding-for-fp8"},
    {"--moe-pad-experts-for-cuda-graph-inference"},
};

constexpr Flag kExpertOverlap[] = {
    {"--overlap-dispatch-backward-with-experts-wgrad"},
    {"--ep-overlap-early-attn-memory-release"},
};

constexpr Flag kRoutingReplay[] = {
    {"--moe-enable-routing-replay"},
};

constexpr Flag kRoutingTraces[] = {
    {"--save-tokens-per-expert-interval", "integer"},      {"--moe-routing-trace-path", "text"},
    {"--moe-routing-trace-max-training-iters", "integer"}, {"--moe-routing-trace-capture-logits"},
    {"--moe-routing-trace-capture-hidden-states"},         {"--moe-routing-trace-dump-weights"},
};

constexpr Flag kLoadBalancing[] = {
    {"--moe-router-quantile-balancing-ema", "number", "0.0"},
    {"--moe-router-force-biased", "number"},
    {"--moe-expert-rank-capacity-factor", "number"},
};

constexpr Flag kInterleavedGlu[] = {
    {"--moe-shared-expert-glu-interleave-size", "integer"},
    {"--moe-mlp-glu-interleave-size", "integer"},
};

constexpr Flag kProbsOnInput[] = {
    {"--moe-apply-probs-on-input"},
};

constexpr Flag kPagedStash[] = {
    {"--moe-paged-stash"},
    {"--moe-paged-stash-page-size", "integer", "64"},
    {"--moe-paged-stash-buffer-size-factor-cuda", "number", "1.1"},
    {"--moe-paged-stash-buffer-size-factor-cpu", "number", "0.0"},
};

constexpr Flag kMoeDtypes[] = {
    {"--moe-dispatch-fwd-dtype", "text", "bf16"},
    {"--moe-combine-bwd-dtype", "text", "bf16"},
};

}  // namespace

void add_moe(Table& t) {
  t.model_group("mixture of experts");
  experts(t);
  router(t);
  tokens(t);
  upcycling(t);
}

void add_parallel_moe(Table& t) {
  t.add<kParallelSizes, &Parallel::expert_model_parallel_size>(
       "--expert-model-parallel-size", "expert-parallel size: ranks that share the experts of a layer")
      .unit("ranks")
      .range(1, 100'000);
  t.add<kParallelSizes, &Parallel::expert_tensor_parallel_size>(
       "--expert-tensor-parallel-size", "tensor-parallel size of experts; 0: --tensor-model-parallel-size")
      .unit("ranks")
      .range(0, 100'000);
  t.add<kParallelSizes, &Parallel::overlap_moe_expert_parallel_comm>(
      "--overlap-moe-expert-parallel-comm",
      "run the forward pass of a micro-batch and the backward pass of another in turns, so that the "
      "all-to-all of experts in one overlaps with the compute of the other");
}

void add_recompute_moe(Table& t) {
  t.shorthand("--moe-layer-recompute",
              "short for --recompute-granularity selective with moe added to --recompute-modules");
}

void expand_moe_layer_recompute(GivenSet& given, Run& run) {
  const Given* asked = given.find("moe_layer_recompute");
  if (asked == nullptr || asked->words != Words{"true"}) return;
  if (run.recompute.granularity == "full")
    return given.faults.push_back(
        fmt::format("{} must not be combined with --recompute-granularity full; got both; remove one: full "
                    "recomputation includes experts",
                    asked->spelled));
  run.recompute.granularity = "selective";
  if (!run.recompute.recomputes("moe")) run.recompute.modules.emplace_back("moe");
  for (const char* key : {"recompute_granularity", "recompute_modules"}) run.given[key] = asked->where;
}

void add_no_op_moe(Table& t) {
  t.group("mixture of experts");
  t.no_op({"--moe-router-dtype", "text"},
          "the router computes in fp32, or in float64 with float64 parameters", {"fp32"})
      .note_if(has_no_experts, kNoExperts);
  t.no_op({"--moe-grouped-gemm"}, "all experts of a rank are one grouped GEMM")
      .note_if(has_no_experts, kNoExperts);
  t.no_op({"--moe-permute-fusion"}, "token permutation is fused").note_if(has_no_experts, kNoExperts);
  t.no_op({"--moe-router-fusion"}, "top-k selection and routing weights are fused")
      .note_if(has_no_experts, kNoExperts);
}

void add_no_effect_moe(Table& t) {
  t.group("mixture of experts");
  t.no_effect("the all-to-all dispatcher uses the backend's collectives", kDispatchers);
  t.no_effect("the weights of a rank's experts are one tensor", kExpertWeights);
  t.no_effect("shared experts and dense MLPs are one GEMM each", kGroupedGemms);
  t.no_effect("experts compute the tokens they receive, without padding", kExpertPadding);
  t.no_effect(
      "routers follow their scores; C++ programs record and replay choices (pipeline::Steps::routing)",
      kRoutingReplay);
}

void add_unsupported_routing(Table& t) {
  t.unsupported("variants of the overlap of experts' communication",
                "remove it; --overlap-moe-expert-parallel-comm overlaps it with another micro-batch",
                kExpertOverlap);
  t.unsupported("routing traces", "remove it", kRoutingTraces);
  t.unsupported("quantile balancing, forced bias or rank capacity of experts",
                "use --moe-router-load-balancing-type or --moe-router-enable-expert-bias", kLoadBalancing);
  t.unsupported("interleaved weights of gated experts",
                "remove it; gate and up projections are contiguous blocks", kInterleavedGlu);
  t.unsupported("routing weights applied to the expert input", "remove it; they scale the expert output",
                kProbsOnInput);
}

void add_unsupported_dispatch(Table& t) {
  t.unsupported("paged stash of expert activations", "remove it; --recompute-modules moe_act saves memory",
                kPagedStash);
  t.unsupported("FP8 token dispatch", "remove it; tokens are dispatched in --params-dtype", kMoeDtypes);
}

}  // namespace colonnade::config
